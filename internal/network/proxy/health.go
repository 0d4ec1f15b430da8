package proxy

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/network/proxy/changes"
)

// healthChecks answer load balancers that ask whether this node has ready endpoints of a
// Service whose traffic stays on the node: 200 with some, 503 without, and when the
// rules do not keep up.
type healthChecks struct {
	progress *progress
	servers  map[types.NamespacedName]*healthCheck
}

type healthCheck struct {
	progress *progress
	port     uint16
	server   *http.Server

	mu    sync.Mutex
	local int
	name  types.NamespacedName
}

func newHealthChecks(progress *progress) *healthChecks {
	return &healthChecks{progress: progress, servers: map[types.NamespacedName]*healthCheck{}}
}

// update opens, changes and closes checks.
func (h *healthChecks) update(ctx context.Context, services []changes.Service) {
	for _, svc := range services {
		check := h.servers[svc.Name]
		if check != nil && check.port != svc.HealthCheckPort {
			_ = check.server.Close()
			delete(h.servers, svc.Name)
			check = nil
		}
		if svc.HealthCheckPort == 0 {
			continue
		}
		if check == nil {
			check = &healthCheck{progress: h.progress, port: svc.HealthCheckPort, name: svc.Name}
			if err := check.listen(); err != nil {
				klog.FromContext(ctx).Error(
					err, "Could not open the health check of a service", "service", svc.Name, "port", svc.HealthCheckPort,
				)
				continue
			}
			h.servers[svc.Name] = check
		}
		endpoints := map[string]bool{}
		for _, p := range svc.Ports {
			if p.LocalEnds {
				continue // they serve whom a balancer still sends, but it should send nobody more
			}
			for _, e := range p.Local {
				endpoints[e.Addr().String()] = true
			}
		}
		check.mu.Lock()
		check.local = len(endpoints)
		check.mu.Unlock()
	}
}

func (h *healthChecks) close() {
	for _, check := range h.servers {
		_ = check.server.Close()
	}
}

func (c *healthCheck) listen() error {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(int(c.port)))
	if err != nil {
		return err
	}
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = c.server.Serve(l) }()
	return nil
}

// ServeHTTP implements http.Handler.
func (c *healthCheck) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	healthy := c.progress.state().keepsUp
	c.mu.Lock()
	local := c.local
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(local))
	if local == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"service":             map[string]string{"namespace": c.name.Namespace, "name": c.name.Name},
		"localEndpoints":      local,
		"serviceProxyHealthy": healthy,
	})
}
