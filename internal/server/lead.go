package server

import (
	"context"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
)

// takePart runs the control loops whenever this server leads, until ctx ends. A server
// that cannot keep its lease, since the database did not take it in time, goes on
// serving the API and takes part in the election again.
func (s *Server) takePart(ctx context.Context) error {
	for {
		turn, end := context.WithCancel(ctx)
		metrics := &lent{Registerer: s.options.Metrics}
		err := s.runControllers(turn, metrics.orNil())
		end()
		metrics.takeBack()
		if err == nil || ctx.Err() != nil || !lostLead(err) {
			return err
		}
		klog.FromContext(ctx).Info("The control loops have stopped here, since their lease could not be renewed; this server takes part in their election again")
	}
}

// lostLead says whether a manager ended because another server may lead now. The
// library has no name for this error.
func lostLead(err error) bool { return strings.HasSuffix(err.Error(), "leader election lost") }

// lent registers metrics until they are taken back.
type lent struct {
	prometheus.Registerer
	mu         sync.Mutex // guards registered
	registered []prometheus.Collector
}

// orNil is nil for a registry that is none.
func (l *lent) orNil() prometheus.Registerer {
	if l.Registerer == nil {
		return nil
	}
	return l
}

// Register implements prometheus.Registerer.
func (l *lent) Register(c prometheus.Collector) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.Registerer.Register(c)
	if err == nil {
		l.registered = append(l.registered, c)
	}
	return err
}

// MustRegister implements prometheus.Registerer.
func (l *lent) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := l.Register(c); err != nil {
			panic(err)
		}
	}
}

func (l *lent) takeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.registered {
		l.Unregister(c)
	}
	l.registered = nil
}
