package pod

import corev1 "k8s.io/api/core/v1"

// IsMirror says whether an API object only shows a static pod.
func IsMirror(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}
