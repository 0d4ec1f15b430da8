package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Summary returns the names and the images of containers, comma separated, as
// tables show them.
func Summary(containers []corev1.Container) (names, images string) {
	n, m := make([]string, len(containers)), make([]string, len(containers))
	for i, c := range containers {
		n[i], m[i] = c.Name, c.Image
	}
	return strings.Join(n, ","), strings.Join(m, ",")
}
