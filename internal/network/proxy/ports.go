package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// listenAgain is after how long a port that somebody else has is tried again.
const listenAgain = 5 * time.Second

// healthPages are what load balancers and probes of the node ask: /healthz whether to
// send traffic here, /livez whether the proxy works.
func (p *Proxy) healthPages() http.Handler {
	mux := http.NewServeMux()
	page := func(path string, counter *prometheus.CounterVec, ok func(state) bool, more func(state) string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			s, code := p.progress.state(), http.StatusOK
			if !ok(s) {
				code = http.StatusServiceUnavailable
			}
			count(counter, code)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"lastUpdated": %q,"currentTime": %q%s}`, s.written, s.now, more(s))
		})
	}
	page("/healthz", p.metrics.healthz, func(s state) bool { return s.keepsUp && s.stays },
		func(s state) string { return fmt.Sprintf(`, "nodeEligible": %t`, s.stays) })
	page("/livez", p.metrics.livez, func(s state) bool { return s.keepsUp }, func(state) string { return "" })
	return mux
}

// servePages answers at an address until ctx ends; at none if it is empty. Traffic of
// Services does not depend on it, so a port that somebody else has is tried again.
func servePages(ctx context.Context, clk clock.Clock, address string, pages http.Handler) {
	for said := false; address != ""; said = true {
		err := listenAndServe(ctx, address, pages)
		if ctx.Err() != nil {
			return
		}
		if !said {
			klog.FromContext(ctx).Error(
				err, "Could not serve the service proxy's health or metrics; trying again", "every", listenAgain,
			)
		}
		select {
		case <-ctx.Done():
			return
		case <-clk.After(listenAgain):
		}
	}
}

func listenAndServe(ctx context.Context, address string, pages http.Handler) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
