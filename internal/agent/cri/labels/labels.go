// Package labels are the labels and annotations that the agent gives sandboxes and containers, so that it knows them
// again after a restart: the kubelet's, and some of its own.
package labels

import (
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/podworker"
)

// Labels and annotations, as the kubelet writes them.
const (
	PodName       = "io.kubernetes.pod.name"
	PodNamespace  = "io.kubernetes.pod.namespace"
	PodUID        = "io.kubernetes.pod.uid"
	ContainerName = "io.kubernetes.container.name"

	Hash                        = "io.kubernetes.container.hash"
	annotationRestartCount      = "io.kubernetes.container.restartCount"
	MessagePathAnnotation       = "io.kubernetes.container.terminationMessagePath"
	MessagePolicy               = "io.kubernetes.container.terminationMessagePolicy"
	annotationPreStop           = "io.kubernetes.container.preStopHandler"
	annotationPorts             = "io.kubernetes.container.ports"
	annotationGrace             = "io.kubernetes.pod.terminationGracePeriod"
	annotationDeletionGrace     = "io.kubernetes.pod.deletionGracePeriod"
	annotationConfigSource      = "kubernetes.io/config.source"
	annotationConfigSeen        = "kubernetes.io/config.seen"
	Image                       = "everynode.io/image"
	annotationResources         = "everynode.io/resources"
	annotationVolumeImages      = "everynode.io/volume-images"
	defaultTerminationMessageAt = "/dev/termination-log"
)

// OfSandbox are the labels of the sandbox of a pod.
func OfSandbox(pod *corev1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	for k, v := range pod.Labels {
		labels[k] = v
	}
	labels[PodName] = pod.Name
	labels[PodNamespace] = pod.Namespace
	labels[PodUID] = string(pod.UID)
	return labels
}

// OfContainer are the labels of a container.
func OfContainer(pod *corev1.Pod, container *corev1.Container) map[string]string {
	return map[string]string{
		PodName:       pod.Name,
		PodNamespace:  pod.Namespace,
		PodUID:        string(pod.UID),
		ContainerName: container.Name,
	}
}

// SandboxAnnotations are the annotations of the sandbox of a pod.
func SandboxAnnotations(pod *corev1.Pod) map[string]string {
	out := make(map[string]string, len(pod.Annotations)+1)
	for k, v := range pod.Annotations {
		out[k] = v
	}
	if out[annotationConfigSource] == "" {
		out[annotationConfigSource] = "api"
	}
	return out
}

// ContainerAnnotations are the annotations of a container with that attempt number.
func ContainerAnnotations(pod *corev1.Pod, container *corev1.Container, attempt uint32) map[string]string {
	out := map[string]string{
		Hash:                   podworker.HashText(podworker.ContainerHash(container)),
		annotationRestartCount: strconv.FormatUint(uint64(attempt), 10),
		MessagePathAnnotation:  MessagePath(container),
		MessagePolicy:          string(container.TerminationMessagePolicy),
		Image:                  container.Image,
	}
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		out[annotationGrace] = strconv.FormatInt(*pod.Spec.TerminationGracePeriodSeconds, 10)
	}
	if pod.DeletionGracePeriodSeconds != nil {
		out[annotationDeletionGrace] = strconv.FormatInt(*pod.DeletionGracePeriodSeconds, 10)
	}
	if container.Lifecycle != nil && container.Lifecycle.PreStop != nil {
		if raw, err := json.Marshal(container.Lifecycle.PreStop); err == nil {
			out[annotationPreStop] = string(raw)
		}
	}
	if raw, err := json.Marshal(container.Resources); err == nil {
		out[annotationResources] = string(raw)
	}
	if len(container.Ports) > 0 {
		if raw, err := json.Marshal(container.Ports); err == nil {
			out[annotationPorts] = string(raw)
		}
	}
	return out
}

// RecordedSpec reads what ContainerAnnotations keeps of the container's spec. What cannot be read is missing.
func RecordedSpec(name string, annotations map[string]string) *corev1.Container {
	out := &corev1.Container{Name: name}
	if raw, ok := annotations[annotationPreStop]; ok {
		hook := &corev1.LifecycleHandler{}
		if json.Unmarshal([]byte(raw), hook) == nil {
			out.Lifecycle = &corev1.Lifecycle{PreStop: hook}
		}
	}
	if raw, ok := annotations[annotationPorts]; ok && json.Unmarshal([]byte(raw), &out.Ports) != nil {
		out.Ports = nil
	}
	return out
}

// ResourcesOf reads the CPU and memory that a container was made with from its annotations, nil if they are not there.
func ResourcesOf(annotations map[string]string) *corev1.ResourceRequirements {
	out := &corev1.ResourceRequirements{}
	if raw, ok := annotations[annotationResources]; !ok || json.Unmarshal([]byte(raw), out) != nil {
		return nil
	}
	return out
}

// KeepVolumeImages notes the digests of the images of volumes, by the volume's name: what a container was made with
// stays true when the agent starts again, and its tag has moved.
func KeepVolumeImages(annotations, digests map[string]string) {
	if len(digests) == 0 {
		return
	}
	if raw, err := json.Marshal(digests); err == nil {
		annotations[annotationVolumeImages] = string(raw)
	}
}

// VolumeImagesOf reads what KeepVolumeImages has noted. What cannot be read is missing.
func VolumeImagesOf(annotations map[string]string) (digests map[string]string) {
	if raw, ok := annotations[annotationVolumeImages]; ok && json.Unmarshal([]byte(raw), &digests) != nil {
		return nil
	}
	return digests
}

// GraceOf reads the termination grace period in seconds from a container's annotations, 0 if it has none.
func GraceOf(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[annotationGrace], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// MessagePath is where a container writes its last words, as it sees that.
func MessagePath(container *corev1.Container) string {
	if container.TerminationMessagePath == "" {
		return defaultTerminationMessageAt
	}
	return container.TerminationMessagePath
}
