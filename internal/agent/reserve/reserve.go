// Package reserve keeps from all pods together what is reserved for the machine, by a bound on their cgroups.
package reserve

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/config"
)

// ChooseDriver is the runtime's driver, and where that does not tell the one that was asked for.
func ChooseDriver(asked, told cgroups.Driver) (string, error) {
	if asked != "" && told != "" && asked != told {
		return "", fmt.Errorf(
			"cgroupDriver %q is asked for, and the container runtime has %q: leave cgroupDriver out, or set SystemdCgroup = "+
				"%t in the runtime's configuration (containerd: /etc/containerd/config.toml) and restart it",

			asked, told, asked == cgroups.Systemd,
		)
	}
	return string(cmp.Or(told, asked, cgroups.Cgroupfs)), nil
}

// boundEvery is how often it is looked whether the machine still has what all pods are bounded by.
const boundEvery = 10 * time.Second

// Bound is what the machine has, and what is kept of it.
type Bound struct {
	// Whole returns the capacity of the machine, and how many processes and threads there may be.
	Whole func() (corev1.ResourceList, int64)
	// Reserved is kept from the pods.
	Reserved corev1.ResourceList
	Cgroups  *cgroups.Cgroups
	// Failed is told why there is no bound.
	Failed func(reason, message string)
	Clock  clock.WithTicker
}

// Run has the kernel keep from all pods together what is reserved, and follows what the machine has: huge pages
// come and go.
func (b *Bound) Run(ctx context.Context) error {
	var last *cgroups.Room
	for {
		capacity, processes := b.Whole()
		room, err := roomFor(capacity, processes, b.Reserved)
		if err == nil && (last == nil || !equality.Semantic.DeepEqual(*last, room)) {
			err = b.Cgroups.Bound(room)
		}
		if err != nil {
			b.Failed("FailedNodeAllocatableEnforcement", err.Error())
			return err
		}
		last = &room
		select {
		case <-ctx.Done():
			return nil
		case <-b.Clock.After(boundEvery):
		}
	}
}

// roomFor is what all pods together may have of a machine with such a capacity, and so many processes and threads. Of
// what nothing is reserved there is no bound but the machine's own.
func roomFor(capacity corev1.ResourceList, processes int64, reserved corev1.ResourceList) (room cgroups.Room,
	err error) {
	room.HugePages = corev1.ResourceList{}
	for name, amount := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			room.HugePages[name] = amount
		}
	}
	ids := reserved[config.ProcessIDs]
	for _, bound := range []struct {
		what      string
		has, kept int64
		always    bool
		of        *int64
	}{
		{"thousandths of a processor", capacity.Cpu().MilliValue(), reserved.Cpu().MilliValue(), true, &room.CPU},
		{"bytes of memory", capacity.Memory().Value(), reserved.Memory().Value(), false, &room.Memory},
		{"processes and threads", processes, ids.Value(), false, &room.PIDs},
	} {
		if bound.kept == 0 && !bound.always {
			continue
		}
		*bound.of = bound.has - bound.kept
		if *bound.of <= 0 {
			return cgroups.Room{}, fmt.Errorf(
				"%d %s are reserved, and the node has %d: lower --system-reserved or --kube-reserved",
				bound.kept, bound.what, bound.has,
			)
		}
	}
	return room, nil
}
