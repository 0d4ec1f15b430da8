package eviction

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// PreemptReason is why pods fail that made room for one that the node needs more; PreemptMessage is what they are told.
const (
	PreemptReason  = "Preempting"
	PreemptMessage = "Preempted in order to admit critical pod"
)

// Preempt says which of the pods on a node must end for a critical one, so few and so unimportant as can be; none if it
// is not critical, or if their end is of no use. Fits says whether the pod has room beside those that are left. Static
// pods stay: nobody brings them back.
func Preempt(pod Usage, others []Usage, fits func(left []*corev1.Pod) bool) []*corev1.Pod {
	if !pod.Critical() {
		return nil
	}
	var left []*corev1.Pod
	var victims []Usage
	for _, o := range others {
		if o.Static || o.Critical() && priority(o.Pod) >= priority(pod.Pod) {
			left = append(left, o.Pod)
		} else {
			victims = append(victims, o)
		}
	}
	if !fits(left) {
		return nil
	}
	// Those that matter most are spared first, if there is room without their end.
	slices.SortFunc(victims, func(a, b Usage) int {
		return cmp.Or(
			cmp.Compare(priority(b.Pod), priority(a.Pod)),
			cmp.Compare(rank(b.Pod), rank(a.Pod)),
			a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time),
			cmp.Compare(a.Pod.UID, b.Pod.UID),
		)
	})
	var out []*corev1.Pod
	for _, v := range victims {
		if with := append(slices.Clone(left), v.Pod); fits(with) {
			left = with
		} else {
			out = append(out, v.Pod)
		}
	}
	return out
}

// rank orders pods by how well they are protected.
func rank(pod *corev1.Pod) int {
	return slices.Index(
		[]corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed}, podfacts.QOS(pod),
	)
}
