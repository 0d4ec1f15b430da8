package podadmission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/eviction"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Refusal is why a node does not take a pod, in the words of the pod's status.
type Refusal struct{ Reason, Message string }

// Node is the node as far as admission depends on it.
type Node struct {
	// Object is the node's object, nil before it is known.
	Object *corev1.Node
	// AppArmor says that the kernel enforces AppArmor.
	AppArmor bool
	// Sysctls are the unsafe kernel parameters that pods may set, each a name or a prefix with * behind it.
	Sysctls []string
	// Pressures are those that the node is under.
	Pressures []corev1.NodeConditionType
	// Provides reports whether device plugins offer the resource; it is counted device by device then.
	Provides func(corev1.ResourceName) bool
}

// Pod is a pod that has room on the node, or wants it.
type Pod struct {
	Object *corev1.Pod
	// Static says that it comes from a manifest of the node.
	Static bool
	// Gone says that the API has the pod no longer: it ends by itself.
	Gone bool
}

// Admission lets a pod have room on the node once these have ended: Victims are pods to end for it, Leaving are pods
// that the API no longer has.
type Admission struct{ Victims, Leaving []*corev1.Pod }

// Decide admits the pod beside those that have room already, or says why it is refused.
func Decide(pod Pod, n Node, others []Pod) (Admission, *Refusal) {
	why := eviction.Refuse(pod.Object, pod.Static, n.Pressures, podfacts.QOS(pod.Object))
	if why != "" {
		return Admission{}, &Refusal{eviction.Reason, "Pod was rejected: " + why}
	}
	r := incapable(pod.Object, n.Object, n.AppArmor)
	if r == nil {
		r = sysctls(pod.Object, n.Sysctls)
	}
	if r != nil {
		return Admission{}, r
	}
	node := withoutDevices(n.Object, n.Provides)
	leaving, staying := n.leavers(pod.Object, node, others)
	given := Admission{Leaving: leaving}
	r = fits(pod.Object, node, objects(staying))
	if r == nil {
		return given, nil
	}
	given.Victims = preempt(pod, node, staying)
	if len(given.Victims) == 0 {
		return Admission{}, r
	}
	return given, nil
}

// leavers returns those of the others that the API no longer has, as far as the pod needs what they have, and those
// that stay. Leavers end by themselves, but the pod must wait for that.
func (n Node) leavers(pod *corev1.Pod, node *corev1.Node, others []Pod) (leaving []*corev1.Pod, staying []Pod) {
	for _, other := range others {
		if other.Gone {
			leaving = append(leaving, other.Object)
		} else {
			staying = append(staying, other)
		}
	}
	if fits(pod, node, objects(others)) == nil {
		leaving = slices.DeleteFunc(leaving, func(other *corev1.Pod) bool { return !n.shareDevices(pod, other) })
	}
	return leaving, staying
}

// shareDevices reports whether both pods ask for devices of one kind.
func (n Node) shareDevices(a, b *corev1.Pod) bool {
	asked := podfacts.Requests(b)
	for name := range podfacts.Requests(a) {
		_, both := asked[name]
		if both && n.Provides(name) {
			return true
		}
	}
	return false
}

// preempt returns the pods whose end gives a critical one its room.
func preempt(pod Pod, node *corev1.Node, others []Pod) []*corev1.Pod {
	if portsTaken(pod.Object, objects(others)) {
		return nil // it is no room that is missing
	}
	candidates := make([]eviction.Usage, len(others))
	for i, other := range others {
		candidates[i] = eviction.Usage{Pod: other.Object, Static: other.Static}
	}
	return eviction.Preempt(
		eviction.Usage{Pod: pod.Object, Static: pod.Static}, candidates,
		func(left []*corev1.Pod) bool {
			return fits(pod.Object, node, left) == nil
		},
	)
}

func objects(list []Pod) []*corev1.Pod {
	out := make([]*corev1.Pod, len(list))
	for i, p := range list {
		out[i] = p.Object
	}
	return out
}
