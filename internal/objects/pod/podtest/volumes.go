// Package podtest makes parts of pods for tests.
package podtest

import corev1 "k8s.io/api/core/v1"

// ImageVolume is a volume that shows an image.
func ImageVolume(name, reference string) corev1.Volume {
	image := &corev1.ImageVolumeSource{Reference: reference}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Image: image}}
}

// Mounted is what a container's status says of the mount of an image volume.
func Mounted(name, imageRef string) corev1.VolumeMountStatus {
	image := &corev1.ImageVolumeStatus{ImageRef: imageRef}
	return corev1.VolumeMountStatus{Name: name, VolumeStatus: &corev1.VolumeStatus{Image: image}}
}
