package cache

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
)

// Pod is what scheduling needs to know of a pod, computed once. It is never changed after NewPod.
type Pod struct {
	// Object is the API object; shared, read only.
	Object *corev1.Pod
	UID    types.UID
	// Priority is the admitted priority, 0 when none was given.
	Priority int32
	// Requests is what the pod asks for; Comparable the same with gaps filled, for comparing nodes.
	Requests   Resources
	Comparable Resources
	HostPorts  []HostPort
	// Controller is the UID of the object that manages the pod, "" for none.
	Controller types.UID
}

// NewPod computes the facts of pod.
func NewPod(pod *corev1.Pod) *Pod {
	p := &Pod{
		Object:     pod,
		UID:        pod.UID,
		Priority:   schedulinghelpers.PodPriority(pod),
		Requests:   podRequests(&pod.Spec, FromList),
		Comparable: podRequests(&pod.Spec, withDefaults),
		HostPorts:  hostPorts(&pod.Spec),
	}
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		p.Controller = ref.UID
	}
	return p
}

// Terminating reports whether the pod is being deleted.
func (p *Pod) Terminating() bool { return p.Object.DeletionTimestamp != nil }

// Repels returns the pod's required anti-affinity.
func (p *Pod) Repels() []corev1.PodAffinityTerm {
	if affinity := p.Object.Spec.Affinity; affinity != nil && affinity.PodAntiAffinity != nil {
		return affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// String is namespace/name, for messages and dumps.
func (p *Pod) String() string { return p.Object.Namespace + "/" + p.Object.Name }

// update returns the facts for a newer object of the same pod, reusing the sums when its spec cannot have changed.
func (p *Pod) update(object *corev1.Pod) *Pod {
	if object.Generation == 0 || object.Generation != p.Object.Generation {
		return NewPod(object)
	}
	updated := *p
	updated.Object = object
	updated.Controller = ""
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		updated.Controller = ref.UID
	}
	return &updated
}
