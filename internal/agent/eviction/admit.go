package eviction

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Refuse says why a node under these pressures takes no such pod; empty if it does. A node that is short of memory
// alone takes pods that asked for some, and those that say that they can live with it.
func Refuse(pod *corev1.Pod, static bool, pressures []corev1.NodeConditionType, class corev1.PodQOSClass) string {
	u := Usage{Pod: pod, Static: static}
	if len(pressures) == 0 || u.Critical() {
		return ""
	}
	if len(pressures) == 1 && pressures[0] == corev1.NodeMemoryPressure {
		if class != corev1.PodQOSBestEffort || slices.ContainsFunc(pod.Spec.Tolerations, toleratesMemoryPressure) {
			return ""
		}
	}
	return fmt.Sprintf("The node had condition: %v. ", pressures)
}

func toleratesMemoryPressure(t corev1.Toleration) bool {
	return (t.Key == corev1.TaintNodeMemoryPressure || (t.Key == "" && t.Operator == corev1.TolerationOpExists)) &&
		(t.Effect == "" || t.Effect == corev1.TaintEffectNoSchedule) &&
		(t.Operator == corev1.TolerationOpExists || t.Value == "")
}
