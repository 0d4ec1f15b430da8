package staticpods

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Mirrors says whether mirror shows the static pod, and is not being deleted.
func Mirrors(mirror, static *corev1.Pod) bool {
	return mirror.Annotations[mirrorAnnotation] == string(static.UID) && mirror.DeletionTimestamp == nil &&
		mirror.Name == static.Name && mirror.Namespace == static.Namespace
}

// Mirror is the object that shows the static pod. NodeUID is the UID of the node's object, which owns it.
func Mirror(static *corev1.Pod, nodeUID types.UID) *corev1.Pod {
	mirror := static.DeepCopy()
	mirror.UID, mirror.Status = "", corev1.PodStatus{}
	mirror.Annotations[mirrorAnnotation] = string(static.UID)
	mirror.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Node", Name: static.Spec.NodeName, UID: nodeUID, Controller: ptr.To(true),
	}}
	return mirror
}

// Step is one change of mirrors in the API, with its reason. Exactly one of Delete and Create is set.
type Step struct {
	// Delete is the mirror to delete at once.
	Delete *corev1.Pod
	// Create is the static pod to make a mirror of.
	Create *corev1.Pod
	Reason string
}

// String renders the step on one line.
func (s Step) String() string {
	if s.Delete != nil {
		return fmt.Sprintf("delete %s/%s (%s)", s.Delete.Namespace, s.Delete.Name, s.Reason)
	}
	return fmt.Sprintf("create %s/%s (%s)", s.Create.Namespace, s.Create.Name, s.Reason)
}

// Plan says how to bring the mirrors in line. Running are the static pods that are on the node, those that are being
// stopped included; found are the API's pods on the node. A pod that somebody made under a static pod's name is left
// alone.
func Plan(running, found []*corev1.Pod) []Step {
	type name struct{ namespace, name string }
	byName := make(map[name]*corev1.Pod, len(running))
	for _, pod := range running {
		byName[name{pod.Namespace, pod.Name}] = pod
	}
	taken := map[name]bool{}
	var steps []Step
	for _, pod := range found {
		key := name{pod.Namespace, pod.Name}
		static := byName[key]
		if static != nil {
			taken[key] = true // until the API says that it is gone
		}
		switch {
		case !podfacts.IsMirror(pod):
		case static == nil:
			steps = append(steps, Step{Delete: pod, Reason: "its static pod is not here"})
		case pod.DeletionTimestamp != nil:
			steps = append(steps, Step{Delete: pod, Reason: "somebody asked for it, and it runs nowhere"})
		case !Mirrors(pod, static):
			steps = append(steps, Step{Delete: pod, Reason: "it shows an earlier static pod"})
		}
	}
	for _, pod := range running {
		if !taken[name{pod.Namespace, pod.Name}] {
			steps = append(steps, Step{Create: pod, Reason: "the API does not show it"})
		}
	}
	return steps
}
