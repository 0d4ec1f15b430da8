package agent

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// eventSource is the component in whose name events about pods are written: tools look for this one.
const eventSource = "kubelet"

// events writes events about pods and their containers.
type events struct{ recorder record.EventRecorder }

// pod records an event about the pod; a nil pod has none.
func (e events) pod(pod *corev1.Pod, eventType, reason, message string) {
	e.container(pod, "", eventType, reason, message)
}

// node records a warning about the node. Its reference has the name as UID, which is what kubectl describe looks for.
func (e events) node(name, reason, message string) {
	e.recorder.Event(&corev1.ObjectReference{Kind: "Node", Name: name, UID: types.UID(name)}, corev1.EventTypeWarning, reason, message)
}

// container records an event about a container of the pod.
func (e events) container(pod *corev1.Pod, container, eventType, reason, message string) {
	if pod == nil {
		return
	}
	ref := &corev1.ObjectReference{
		Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: fieldPath(pod, container),
	}
	e.recorder.Event(ref, eventType, reason, message)
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
