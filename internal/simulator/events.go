package simulator

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/podworker"
)

// event is something that a node tells about one container of a pod.
type event struct {
	container                  string
	eventType, reason, message string
}

func (p *pod) note(container, eventType, reason, message string) {
	p.events = append(p.events, event{container, eventType, reason, message})
}

// notePull tells how a pull ended.
func (p *pod) notePull(container, image string, outcome podworker.Outcome, pulled bool) {
	switch {
	case outcome.Failed():
		p.note(
			container, corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", image, outcome.Message),
		)
		p.note(container, corev1.EventTypeWarning, "Failed", "Error: "+outcome.Reason)
	case pulled:
		p.note(container, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q", image))
	default:
		p.note(
			container, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine", image),
		)
	}
}

// noteBackOff tells that a container waits before it is tried again.
func (p *pod) noteBackOff(action podworker.Action) {
	if action.Reason == podworker.ReasonImagePullBackOff {
		p.note(action.Container, corev1.EventTypeNormal, "BackOff", action.Message)
		p.note(action.Container, corev1.EventTypeWarning, "Failed", "Error: "+action.Reason)
		return
	}
	p.note(action.Container, corev1.EventTypeWarning, "BackOff", action.Message)
}

// tell records what was noted, in order.
func tell(config *Config, object *corev1.Pod, events []event) {
	if config.Events == nil {
		return
	}
	for _, e := range events {
		if config.OnlyWarnings && e.eventType != corev1.EventTypeWarning {
			continue
		}
		config.Events.Event(&corev1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: object.Namespace, Name: object.Name, UID: object.UID,
			ResourceVersion: object.ResourceVersion, FieldPath: fieldPath(object, e.container),
		}, e.eventType, e.reason, e.message)
	}
}

func fieldPath(object *corev1.Pod, container string) string {
	if container == "" {
		return ""
	}
	for i := range object.Spec.InitContainers {
		if object.Spec.InitContainers[i].Name == container {
			return "spec.initContainers{" + container + "}"
		}
	}
	return "spec.containers{" + container + "}"
}
