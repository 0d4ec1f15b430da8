package cri

import (
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/podworker"
)

// Labels and annotations, as the kubelet writes them.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelPodNamespace  = "io.kubernetes.pod.namespace"
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"

	annotationHash              = "io.kubernetes.container.hash"
	annotationRestartCount      = "io.kubernetes.container.restartCount"
	annotationMessagePath       = "io.kubernetes.container.terminationMessagePath"
	annotationMessagePolicy     = "io.kubernetes.container.terminationMessagePolicy"
	annotationPreStop           = "io.kubernetes.container.preStopHandler"
	annotationPorts             = "io.kubernetes.container.ports"
	annotationGrace             = "io.kubernetes.pod.terminationGracePeriod"
	annotationDeletionGrace     = "io.kubernetes.pod.deletionGracePeriod"
	annotationConfigSource      = "kubernetes.io/config.source"
	annotationConfigSeen        = "kubernetes.io/config.seen"
	annotationImage             = "everynode.io/image"
	annotationResources         = "everynode.io/resources"
	defaultTerminationMessageAt = "/dev/termination-log"
)

func sandboxLabels(pod *corev1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	for k, v := range pod.Labels {
		labels[k] = v
	}
	labels[labelPodName] = pod.Name
	labels[labelPodNamespace] = pod.Namespace
	labels[labelPodUID] = string(pod.UID)
	return labels
}

func containerLabels(pod *corev1.Pod, container *corev1.Container) map[string]string {
	return map[string]string{
		labelPodName:       pod.Name,
		labelPodNamespace:  pod.Namespace,
		labelPodUID:        string(pod.UID),
		labelContainerName: container.Name,
	}
}

func sandboxAnnotations(pod *corev1.Pod) map[string]string {
	out := make(map[string]string, len(pod.Annotations)+1)
	for k, v := range pod.Annotations {
		out[k] = v
	}
	if out[annotationConfigSource] == "" {
		out[annotationConfigSource] = "api"
	}
	return out
}

func containerAnnotations(pod *corev1.Pod, container *corev1.Container, attempt uint32) map[string]string {
	out := map[string]string{
		annotationHash:          podworker.HashText(podworker.ContainerHash(container)),
		annotationRestartCount:  strconv.FormatUint(uint64(attempt), 10),
		annotationMessagePath:   messagePath(container),
		annotationMessagePolicy: string(container.TerminationMessagePolicy),
		annotationImage:         container.Image,
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

// recordedSpec reads what containerAnnotations keeps of the container's spec. What cannot be read is missing.
func recordedSpec(name string, annotations map[string]string) *corev1.Container {
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

// resourcesOf reads the CPU and memory that a container was made with from its annotations, nil if they are not there.
func resourcesOf(annotations map[string]string) *corev1.ResourceRequirements {
	out := &corev1.ResourceRequirements{}
	if raw, ok := annotations[annotationResources]; !ok || json.Unmarshal([]byte(raw), out) != nil {
		return nil
	}
	return out
}

// graceOf reads the termination grace period in seconds from a container's annotations, 0 if it has none.
func graceOf(annotations map[string]string) int64 {
	n, err := strconv.ParseInt(annotations[annotationGrace], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func messagePath(container *corev1.Container) string {
	if container.TerminationMessagePath == "" {
		return defaultTerminationMessageAt
	}
	return container.TerminationMessagePath
}
