package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestTrouble(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	for want, c := range map[string]struct {
		status corev1.ContainerStatus
		cause  Cause
	}{
		"": {corev1.ContainerStatus{State: waiting("ContainerCreating", "")}, ""},
		"container agent: image demo:v9 cannot be pulled": {corev1.ContainerStatus{State: waiting("ImagePullBackOff", "long")}, ImagePull},
		"container agent cannot be started: no such file": {corev1.ContainerStatus{State: waiting("RunContainerError", "no such file")}, ContainerStart},
		"container agent was killed for memory":           {corev1.ContainerStatus{State: waiting("CrashLoopBackOff", ""), LastTerminationState: ended(137, "OOMKilled")}, OutOfMemory},
		"container agent ended with exit code 3":          {corev1.ContainerStatus{State: waiting("CrashLoopBackOff", ""), LastTerminationState: ended(3, "Error"), RestartCount: 2}, ""},
		"container agent ended by itself":                 {corev1.ContainerStatus{State: waiting("CrashLoopBackOff", ""), LastTerminationState: ended(0, "Completed")}, ""},
	} {
		c.status.Name, c.status.Image = "agent", "demo:v9"
		p := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "other"}, c.status}}}
		if got, cause := Trouble(p); got != want || cause != c.cause || Restarts(p) != c.status.RestartCount {
			t.Errorf("trouble is %q, cause %q, with %d restarts, want %q", got, cause, Restarts(p), want)
		}
	}
}
