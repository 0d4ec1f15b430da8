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

// Since a change of a running pod counts what its containers did since, each by itself: one that restarted often before
// hides nothing of another, and how one ended before that runs again is no trouble.
func TestSince(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	killed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
	agent := corev1.ContainerStatus{Name: "agent", State: running, LastTerminationState: killed, RestartCount: 6}
	proxy := corev1.ContainerStatus{Name: "proxy", State: running}
	p := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{agent},
		InitContainerStatuses: []corev1.ContainerStatus{proxy}}}
	before := RestartsBy(p)
	check := func(what string, restarts int32, cause Cause) {
		t.Helper()
		why, got := TroubleSince(p, before)
		if n := RestartsSince(p, before); n != restarts || got != cause || (cause == "") != (why == "") {
			t.Errorf("%s: %d restarts, %q by %q, want %d by %q", what, n, why, got, restarts, cause)
		}
	}
	check("nothing", 0, "")
	if _, cause := Trouble(p); cause != OutOfMemory {
		t.Errorf("in its whole life its trouble is %q", cause)
	}
	p.Status.InitContainerStatuses[0].RestartCount = 3
	check("the other restarts", 3, "")
	p.Status.InitContainerStatuses[0].LastTerminationState = killed
	check("the other is killed", 3, OutOfMemory)
	p.Status.InitContainerStatuses[0] = proxy
	p.Status.ContainerStatuses[0].RestartCount = 7
	check("the same is killed", 1, OutOfMemory)
	p.Status.ContainerStatuses[0] = agent
	p.Status.ContainerStatuses[0].State = killed
	check("it has ended", 0, OutOfMemory)
	p.Status = corev1.PodStatus{Phase: corev1.PodFailed}
	if why, _ := TroubleSince(p, before); why == "" {
		t.Error("a pod that failed is in no trouble")
	}
}
