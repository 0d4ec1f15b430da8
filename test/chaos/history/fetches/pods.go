package fetches

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// After is the UID of the daemon whose successor's images a pod has its node pull; "" if it is no such pod.
func After(p *corev1.Pod) types.UID {
	if RevisionOf(p) == "" {
		return ""
	}
	return types.UID(p.Labels["everynode.io/fetches-after"])
}

// RevisionOf is the one whose images it pulls.
func RevisionOf(p *corev1.Pod) string { return p.Annotations["everynode.io/fetches-revision"] }

// Has reports whether its node has all its images.
func Has(p *corev1.Pod) bool { return pulled(p) == has }

// pulled is what a version of such a pod says. That one has ended says nothing: users have pods end too.
func pulled(p *corev1.Pod) said {
	there := 0
	for _, c := range p.Status.ContainerStatuses {
		if c.ImageID != "" {
			there++
		}
		if w := c.State.Waiting; w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") {
			return cannot
		}
	}
	if there == 0 || there < len(p.Spec.Containers) {
		return none
	}
	return has
}
