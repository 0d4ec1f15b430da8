package pod

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// BoundSince is when the pod was bound to its node; the zero time if it is not.
func BoundSince(p *corev1.Pod) time.Time {
	if !IsBound(p) {
		return time.Time{}
	}
	if c := Condition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue &&
		!c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return p.CreationTimestamp.Time
}

// Restarts is how often the container of the pod that restarted most has.
func Restarts(p *corev1.Pod) (most int32) {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			most = max(most, list[i].RestartCount)
		}
	}
	return most
}

// RestartsBy is how often each container of the pod has restarted, by its name; those that never did are left out.
func RestartsBy(p *corev1.Pod) map[string]int32 {
	var out map[string]int32
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if list[i].RestartCount == 0 {
				continue
			}
			if out == nil {
				out = map[string]int32{}
			}
			out[list[i].Name] = list[i].RestartCount
		}
	}
	return out
}

// RestartsSince is how often the container of the pod that restarted most has, since RestartsBy was before.
func RestartsSince(p *corev1.Pod, before map[string]int32) (most int32) {
	for name, count := range RestartsBy(p) {
		most = max(most, count-before[name])
	}
	return most
}

// Cause is what keeps a pod from coming up where waiting will not help.
type Cause string

// The causes; "" means that waiting may help.
const (
	ImagePull      Cause = "ImagePull"
	ContainerStart Cause = "ContainerStart"
	OutOfMemory    Cause = "OutOfMemory"
)

// Trouble says why the pod does not come up, in words that stay while the trouble
// does; "" if nothing is known to be wrong.
func Trouble(p *corev1.Pod) (why string, cause Cause) {
	return trouble(p, func(*corev1.ContainerStatus) bool { return false })
}

// TroubleSince is the Trouble since RestartsBy was before: how a container ended earlier that runs now is none.
func TroubleSince(p *corev1.Pod, before map[string]int32) (why string, cause Cause) {
	return trouble(p, func(c *corev1.ContainerStatus) bool {
		return c.State.Running != nil && c.RestartCount <= before[c.Name]
	})
}

// trouble is that of containers but for those that are well.
func trouble(p *corev1.Pod, well func(*corev1.ContainerStatus) bool) (why string, cause Cause) {
	if p.Status.Phase == corev1.PodFailed {
		return colon("its pod failed", p.Status.Reason), ""
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if well(&list[i]) {
				continue
			}
			w, c := containerTrouble(&list[i])
			if c != "" || why == "" {
				why, cause = w, c
			}
			if cause != "" {
				return why, cause
			}
		}
	}
	return why, ""
}

func containerTrouble(c *corev1.ContainerStatus) (why string, cause Cause) {
	last := c.LastTerminationState.Terminated
	if c.State.Terminated != nil {
		last = c.State.Terminated
	}
	if w := c.State.Waiting; w != nil {
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
			"RegistryUnavailable", "SignatureValidationFailed":
			return fmt.Sprintf("container %s: image %s cannot be pulled", c.Name, c.Image), ImagePull
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreCreateHookError",
			"PreStartHookError", "PostStartHookError":
			return colon("container "+c.Name+" cannot be started", w.Message), ContainerStart
		}
	}
	switch {
	case last == nil:
		return "", ""
	case last.Reason == "OOMKilled":
		return "container " + c.Name + " was killed for memory", OutOfMemory
	case last.ExitCode != 0:
		return fmt.Sprintf("container %s ended with exit code %d", c.Name, last.ExitCode), ""
	case c.State.Waiting != nil:
		return "container " + c.Name + " ended by itself", ""
	}
	return "", ""
}

func colon(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}
