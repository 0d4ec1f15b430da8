package scrape

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/cri"
)

// Machine is what the whole node uses.
type Machine struct {
	CPU time.Duration
	// Memory is the working set, MemoryCapacity all there is.
	Memory, MemoryCapacity int64
	Cores                  int
}

// Config says where to find things. All fields are needed.
type Config struct {
	NodeName string
	// Groups lists what runs.
	Groups func(ctx context.Context) ([]cri.Group, error)
	// Layers are how much containers wrote to their own file systems, in bytes by ID.
	Layers func(ctx context.Context) (map[string]int64, error)
	// Machine reads what the node uses.
	Machine func() (Machine, error)
	// Version is that of the agent.
	Version string
	// Measure reads what a cgroup uses, nil if it is gone; Processes lists what is in one, nothing if it is gone.
	Measure   func(cgroup string) (*cgroups.Usage, error)
	Processes func(cgroup string) ([]int, error)
	// Proc is where the processes are shown; the default is /proc.
	Proc string
}

// Pages serve the metrics.
type Pages struct {
	cfg    Config
	own    *prometheus.Registry
	probes *prometheus.Registry
	*Observed
}

// New prepares the pages.
func New(cfg Config) *Pages {
	if cfg.Proc == "" {
		cfg.Proc = "/proc"
	}
	p := &Pages{cfg: cfg, own: prometheus.NewRegistry(), probes: prometheus.NewRegistry(), Observed: newObserved()}
	p.registerOwn()
	p.probes.MustRegister(p.Observed.probes, p.Observed.probeDurations)
	return p
}

// Handlers are the pages by path.
func (p *Pages) Handlers() map[string]http.Handler {
	return map[string]http.Handler{
		"/metrics":          promhttp.HandlerFor(p.own, promhttp.HandlerOpts{}),
		"/metrics/probes":   promhttp.HandlerFor(p.probes, promhttp.HandlerOpts{}),
		"/metrics/resource": p.measured(p.resource),
		"/metrics/cadvisor": p.measured(p.cadvisor),
	}
}

// measured serves what collect finds at the time of the request.
func (p *Pages) measured(collect func(ctx context.Context, out *sink)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &sink{}
		collect(r.Context(), out)
		if err := out.serve(w, r); err != nil {
			klog.FromContext(r.Context()).V(2).Info("Could not send the metrics", "err", err)
		}
	})
}

// group is what runs, with what its cgroup uses at a moment; nothing is measured of a sandbox, whose program only
// waits.
type group struct {
	cri.Group
	stats *cgroups.Usage
	at    time.Time
}

// look measures all containers that run, and each pod; sandboxes are there for their networks. What ended meanwhile is
// left out.
func (p *Pages) look(ctx context.Context) (running, pods []group, err error) {
	list, err := p.cfg.Groups(ctx)
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for _, g := range list {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if g.Container == "" {
			running = append(running, group{g, nil, time.Now()})
		} else if stats := p.tryMeasure(ctx, g.Cgroup); stats != nil {
			running = append(running, group{g, stats, time.Now()})
		}
		if seen[g.PodCgroup] {
			continue
		}
		seen[g.PodCgroup] = true
		if stats := p.tryMeasure(ctx, g.PodCgroup); stats != nil {
			pod := cri.Group{
				PodUID:    g.PodUID,
				Namespace: g.Namespace,
				Pod:       g.Pod,
				Cgroup:    g.PodCgroup,
				PodCgroup: g.PodCgroup,
				StartedAt: g.StartedAt,
			}
			pods = append(pods, group{pod, stats, time.Now()})
		}
	}
	return running, pods, nil
}

func (p *Pages) tryMeasure(ctx context.Context, cgroup string) *cgroups.Usage {
	stats, err := p.cfg.Measure(cgroup)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not measure a cgroup", "err", err)
	}
	return stats
}

func seconds(nanoseconds uint64) float64 { return float64(nanoseconds) / float64(time.Second) }

func unix(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }
