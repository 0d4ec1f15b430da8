package cgroups

import (
	"fmt"

	library "github.com/opencontainers/cgroups"
	corev1 "k8s.io/api/core/v1"
)

// Room is what all pods of a node may use together. The kernel ends some of their processes when they want more memory,
// refuses them more processes and huge pages, and gives them their share of the processor when others want it too.
type Room struct {
	// CPU is in thousandths of a processor, Memory in bytes, PIDs in processes and threads; 0 for no bound.
	CPU, Memory, PIDs int64
	// HugePages are how much there is of huge pages, by the names of the resources.
	HugePages corev1.ResourceList
}

// Bound bounds all pods together. The kernel may refuse it while they have more.
func (c *Cgroups) Bound(room Room) error {
	pids := orUnlimited(room.PIDs)
	r := &library.Resources{
		Memory:       orUnlimited(room.Memory),
		PidsLimit:    &pids,
		HugetlbLimit: PageLimits(room.HugePages, c.sizes),
	}
	if room.CPU > 0 {
		setShares(r, CPUShares(room.CPU), c.Unified())
	}
	if err := c.apply(allPods(), r); err != nil {
		return fmt.Errorf("bound what all pods use together, in cgroup %s: %w", c.layout.path(allPods()), err)
	}
	return nil
}
