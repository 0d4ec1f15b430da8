package scrape

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/node/usage"
)

// Use is what something that runs uses.
type Use struct {
	cri.Group
	At time.Time
	// CPU is the processor time so far.
	CPU       time.Duration
	Memory    usage.Memory
	Processes uint64
}

// Uses measures what runs, and the pods. Networks are what went through the interfaces of pods that have some, by UID;
// those of the node itself are at "".
func (p *Pages) Uses(ctx context.Context) (running, pods []Use, networks map[string][]usage.Interface, err error) {
	groups, podGroups, err := p.look(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	proc, err := procfs.NewFS(p.cfg.Proc)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("open %s: %w", p.cfg.Proc, err)
	}
	own, err := proc.NetDev()
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read the node's network interfaces: %w", err)
	}
	networks = map[string][]usage.Interface{"": interfaces(own)}
	for _, g := range groups {
		if g.Container != "" {
			running = append(running, use(g))
			continue
		}
		lines, err := p.ofSandbox(proc, g)
		if err != nil {
			klog.FromContext(ctx).V(2).Info(
				"Could not read the network of a pod", "pod", klog.KRef(g.Namespace, g.Pod), "err", err,
			)
			continue
		}
		if lines != nil {
			networks[string(g.PodUID)] = interfaces(lines)
		}
	}
	for _, g := range podGroups {
		pods = append(pods, use(g))
	}
	return running, pods, networks, nil
}

func use(g group) Use {
	stats := g.stats
	out := Use{Group: g.Group, At: g.at, CPU: time.Duration(stats.CPU), Processes: stats.Tasks, Memory: usage.Memory{
		UsageBytes: &stats.Memory, WorkingSetBytes: stats.WorkingSet(), RSSBytes: &stats.RSS, PageFaults: &stats.Faults,
		MajorPageFaults: &stats.MajorFaults}}
	if most := stats.MemoryLimit; most < cgroups.Unlimited && most >= out.Memory.WorkingSetBytes {
		left := most - out.Memory.WorkingSetBytes
		out.Memory.AvailableBytes = &left
	}
	return out
}

// interfaces are those that lead somewhere, the main one first.
func interfaces(lines procfs.NetDev) []usage.Interface {
	out := make([]usage.Interface, 0, len(lines))
	for name, l := range lines {
		if name != "lo" {
			out = append(out, usage.Interface{
				Name:     name,
				RxBytes:  l.RxBytes,
				RxErrors: l.RxErrors,
				TxBytes:  l.TxBytes,
				TxErrors: l.TxErrors,
			})
		}
	}
	slices.SortFunc(out, func(a, b usage.Interface) int {
		if (a.Name == mainInterface) != (b.Name == mainInterface) {
			if a.Name == mainInterface {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// mainInterface is the one whose numbers stand for all in a summary.
const mainInterface = "eth0"
