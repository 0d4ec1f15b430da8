package volumes

import (
	corev1 "k8s.io/api/core/v1"
)

// EmptyDirs are the folders of the pod's empty directories on disk, by volume. They need not be there yet.
func (m *Manager) EmptyDirs(pod *corev1.Pod) map[string]string {
	out := map[string]string{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault {
			out[v.Name] = m.volumeDir(pod.UID, "empty-dir", v.Name)
		}
	}
	return out
}
