package standalone

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// probed serves the metrics of a controller that runs alone, and whether it is well. It
// shows counters and nothing of the cluster's objects but the names of DaemonSets.
type probed struct {
	registry *prometheus.Registry
	// listener is nil where nothing is served.
	listener net.Listener
	// reach asks whether the API answers.
	reach func(context.Context) error
	// answers reports whether the API server's questions are answered here; nil where it has none.
	answers func() bool
}

// listenForProbes takes the address, so that one that cannot be had ends the start.
func listenForProbes(address string, reach func(context.Context) error) (*probed, error) {
	p := &probed{registry: prometheus.NewRegistry(), reach: reach}
	p.registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if address == "" {
		return p, nil
	}
	var err error
	p.listener, err = net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics at %s: %w; choose another address with --listen", address, err)
	}
	return p, nil
}

// reachTimeout is less than what probes wait.
const reachTimeout = 800 * time.Millisecond

// close gives the address back.
func (p *probed) close() {
	if p.listener != nil {
		_ = p.listener.Close() // The server has closed it already.
	}
}

// NeedLeaderElection tells the manager that those that stand by serve too.
func (*probed) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (p *probed) Start(ctx context.Context) error {
	if p.listener == nil {
		<-ctx.Done()
		return nil
	}
	server := &http.Server{Handler: p.handler(), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

func (p *probed) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	ok := func(w http.ResponseWriter) { _, _ = w.Write([]byte("ok\n")) }
	// An API that is away is no reason to start the controller again.
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { ok(w) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeout(req.Context(), reachTimeout)
		defer cancel()
		if err := p.reach(ctx); err != nil {
			http.Error(w, "the API does not answer: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		// A Service leads the API server to whoever is ready, and what nobody answers is of the wrong revision.
		if p.answers != nil && !p.answers() {
			http.Error(w, "the webhook does not answer yet", http.StatusServiceUnavailable)
			return
		}
		ok(w)
	})
	return mux
}
