// Package events writes the events of a node and its pods.
package events

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// Source is the component in whose name events about pods are written: tools look for this one.
const Source = "kubelet"

// Recorder writes events about the node, its pods and their containers.
type Recorder struct{ record.EventRecorder }

// Pod records an event about the pod; a nil pod has none.
func (e Recorder) Pod(pod *corev1.Pod, eventType, reason, message string) {
	e.Container(pod, "", eventType, reason, message)
}

// Node records a warning about the node. Its reference has the name as UID, which is what kubectl describe looks for.
func (e Recorder) Node(name, reason, message string) {
	e.EventRecorder.Event(&corev1.ObjectReference{Kind: "Node", Name: name, UID: types.UID(name)}, corev1.EventTypeWarning,
		reason, message)
}

// Container records an event about a container of the pod.
func (e Recorder) Container(pod *corev1.Pod, container, eventType, reason, message string) {
	if pod == nil {
		return
	}
	ref := &corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: fieldPath(pod, container),
	}
	e.EventRecorder.Event(ref, eventType, reason, message)
}

func fieldPath(pod *corev1.Pod, container string) string {
	if container == "" {
		return ""
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			return fmt.Sprintf("spec.initContainers{%s}", container)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			return fmt.Sprintf("spec.ephemeralContainers{%s}", container)
		}
	}
	return fmt.Sprintf("spec.containers{%s}", container)
}
