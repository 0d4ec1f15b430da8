package eviction

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// criticalPriority is the lowest priority of pods that a node never ends for lack of room.
const criticalPriority = 2000000000

// Usage is what a pod uses of its node.
type Usage struct {
	Pod *corev1.Pod
	// Static says that the node runs the pod on its own account.
	Static bool
	// Memory and Disk are in bytes.
	Memory, Disk, Inodes, Processes int64
	// Containers are the parts of it, by container; Volumes the bytes in each emptyDir on disk.
	Containers map[string]ContainerUsage
	Volumes    map[string]int64
	// Unmeasured is an emptyDir of the pod, or the logs, in which folders are nested too deep to be measured; empty for
	// none.
	Unmeasured string
}

// ContainerUsage is what one container uses, in bytes. Disk is its own layer and its logs.
type ContainerUsage struct{ Memory, Disk int64 }

// Critical says whether the node must keep the pod whatever it uses.
func (u *Usage) Critical() bool {
	return u.Static || (u.Pod.Spec.Priority != nil && *u.Pod.Spec.Priority >= criticalPriority)
}

// of is how much the pod uses of what the signal is about, and how much of that it requested.
func (u *Usage) of(s Signal) (used, requested int64) {
	switch s {
	case MemoryAvailable:
		return u.Memory, quantity(podfacts.Requests(u.Pod), corev1.ResourceMemory)
	case NodeFSInodesFree, ImageFSInodesFree:
		return u.Inodes, 0
	case PIDAvailable:
		return u.Processes, 0
	default:
		return u.Disk, quantity(podfacts.Requests(u.Pod), corev1.ResourceEphemeralStorage)
	}
}

func quantity(list corev1.ResourceList, name corev1.ResourceName) int64 {
	q := list[name]
	return q.Value()
}

// Victim is the pod to end for the crossing, nil if none may be.
func Victim(c Crossing, pods []Usage) *Usage {
	candidates := slices.DeleteFunc(slices.Clone(pods), func(u Usage) bool { return u.Critical() })
	if len(candidates) == 0 {
		return nil
	}
	first := slices.MinFunc(candidates, func(a, b Usage) int { return before(c.Threshold.Signal, &a, &b) })
	return &first
}

// before orders pods by who goes first.
func before(s Signal, a, b *Usage) int {
	usedA, requestedA := a.of(s)
	usedB, requestedB := b.of(s)
	// Nobody knows how much is hidden in what cannot be measured.
	exceeds := func(u *Usage, used, requested int64) int {
		if used > requested || s.OnDisk() && u.Unmeasured != "" {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(exceeds(a, usedA, requestedA), exceeds(b, usedB, requestedB)),
		cmp.Compare(priority(a.Pod), priority(b.Pod)),
		cmp.Compare(usedB-requestedB, usedA-requestedA),
		cmp.Compare(a.Pod.UID, b.Pod.UID),
	)
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func bytes(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
