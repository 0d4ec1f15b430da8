package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/internal/agent/cgroups"
)

const (
	// defaultMaxPods is how many pods a node takes unless it is told otherwise.
	defaultMaxPods = 110
	// minLogSize is the least size in bytes at which logs are rotated: less would be nothing but rotating.
	minLogSize = 64 << 10
)

// reservable are the resources of which some can be kept from pods.
var reservable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, processIDs}

// processIDs is the name by which processes and threads are reserved, as with a kubelet. Pods do not request them.
const processIDs corev1.ResourceName = "pid"

// completeReserve checks what says how many pods there are, what is kept from them, and how long their logs get.
func (c *Config) completeReserve() error {
	if c.MaxPods == 0 {
		c.MaxPods = defaultMaxPods
	}
	if c.MaxPods < 0 {
		return fmt.Errorf("--max-pods %d: a node takes one pod at least", c.MaxPods)
	}
	c.reserved = corev1.ResourceList{}
	for flag, list := range map[string]map[string]string{"--system-reserved": c.SystemReserved, "--kube-reserved": c.KubeReserved} {
		if err := c.reserve(flag, list); err != nil {
			return err
		}
	}
	return c.completeLogs()
}

// reserve adds what a flag keeps from pods.
func (c *Config) reserve(flag string, list map[string]string) error {
	for text, value := range list {
		name := corev1.ResourceName(text)
		if !slices.Contains(reservable, name) {
			return fmt.Errorf("%s: of %q nothing can be reserved; cpu, memory, ephemeral-storage and pid can", flag, name)
		}
		amount, err := resource.ParseQuantity(value)
		if err != nil || amount.Sign() < 0 {
			return fmt.Errorf("%s: %s=%s is not an amount, such as cpu=500m or memory=1Gi", flag, name, value)
		}
		amount.Add(c.reserved[name])
		c.reserved[name] = amount
	}
	return nil
}

// boundEvery is how often it is looked whether the machine still has what all pods are bounded by.
const boundEvery = 10 * time.Second

// boundPods has the kernel keep from all pods together what is reserved, and follows what the machine has: huge pages come and go.
func (n *node) boundPods(ctx context.Context) error {
	var last *cgroups.Room
	for {
		capacity, processes := n.reporter.Whole()
		room, err := roomFor(capacity, processes, n.reserved)
		if err == nil && (last == nil || !equality.Semantic.DeepEqual(*last, room)) {
			err = n.cgroups.Bound(room)
		}
		if err != nil {
			n.pods.events.node(n.nodeName, "FailedNodeAllocatableEnforcement", err.Error())
			return err
		}
		last = &room
		select {
		case <-ctx.Done():
			return nil
		case <-n.clock.After(boundEvery):
		}
	}
}

// roomFor is what all pods together may have of a machine with such a capacity, and so many processes and threads. Of what nothing is
// reserved there is no bound but the machine's own.
func roomFor(capacity corev1.ResourceList, processes int64, reserved corev1.ResourceList) (room cgroups.Room, err error) {
	room.HugePages = corev1.ResourceList{}
	for name, amount := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			room.HugePages[name] = amount
		}
	}
	ids := reserved[processIDs]
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
		if *bound.of = bound.has - bound.kept; *bound.of <= 0 {
			return cgroups.Room{}, fmt.Errorf("%d %s are reserved, and the node has %d: lower --system-reserved or --kube-reserved", bound.kept, bound.what, bound.has)
		}
	}
	return room, nil
}

func (c *Config) completeLogs() error {
	setDefault(&c.LogMaxSize, "10Mi")
	if c.LogMaxFiles == 0 {
		c.LogMaxFiles = 5
	}
	size, err := resource.ParseQuantity(c.LogMaxSize)
	if err != nil || size.Value() < minLogSize {
		return fmt.Errorf("--container-log-max-size %s is not a size of 64Ki or more, such as 10Mi", c.LogMaxSize)
	}
	c.logMaxSize = size.Value()
	if c.LogMaxFiles < 2 {
		return errors.New("--container-log-max-files: a container has two files of logs at least, the one that is written and the one before it")
	}
	return nil
}
