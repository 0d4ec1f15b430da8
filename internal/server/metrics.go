package server

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

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
