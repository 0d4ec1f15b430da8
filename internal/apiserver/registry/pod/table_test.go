package pod

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func waiting(name, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

func ended(name, reason string, code, signal int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, Signal: signal}}}
}

func running(name string, ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, Ready: ready, Started: ptr.To(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func restarted(s corev1.ContainerStatus, count int32, ago time.Duration) corev1.ContainerStatus {
	s.RestartCount = count
	s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(noon.Add(-ago))}
	return s
}

func containers(names ...string) []corev1.Container {
	out := make([]corev1.Container, len(names))
	for i, n := range names {
		out[i].Name = n
	}
	return out
}

func TestStatusColumn(t *testing.T) {
	phase := func(p corev1.PodPhase, s ...corev1.ContainerStatus) corev1.PodStatus {
		return corev1.PodStatus{Phase: p, ContainerStatuses: s}
	}
	initial := func(s ...corev1.ContainerStatus) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: s}
	}
	deleted := metav1.NewTime(noon)
	sidecar := containers("side")
	sidecar[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	for name, c := range map[string]struct {
		init   []corev1.Container
		status corev1.PodStatus
		edit   func(*corev1.Pod)
		want   string // ready, status, restarts
	}{
		"new":                   {status: phase(corev1.PodPending), want: "0/2 Pending 0"},
		"creating":              {status: phase(corev1.PodPending, waiting("a", "ContainerCreating"), waiting("b", "ContainerCreating")), want: "0/2 ContainerCreating 0"},
		"running, one ready":    {status: phase(corev1.PodRunning, running("a", true), running("b", false)), want: "1/2 Running 0"},
		"crashing":              {status: phase(corev1.PodRunning, restarted(waiting("a", "CrashLoopBackOff"), 3, 5*time.Minute), running("b", true)), want: "1/2 CrashLoopBackOff 3 (5m ago)"},
		"the first speaks":      {status: phase(corev1.PodRunning, waiting("a", "ImagePullBackOff"), waiting("b", "CrashLoopBackOff")), want: "0/2 ImagePullBackOff 0"},
		"ended by a signal":     {status: phase(corev1.PodFailed, ended("a", "", 137, 9)), want: "0/2 Signal:9 0"},
		"ended by a code":       {status: phase(corev1.PodFailed, ended("a", "", 3, 0)), want: "0/2 ExitCode:3 0"},
		"completed":             {status: phase(corev1.PodSucceeded, ended("a", "Completed", 0, 0), ended("b", "Completed", 0, 0)), want: "0/2 Completed 0"},
		"one completed":         {status: phase(corev1.PodRunning, ended("a", "Completed", 0, 0), running("b", true)), want: "1/2 NotReady 0"},
		"evicted":               {status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}, want: "0/2 Evicted 0"},
		"initializing":          {init: containers("i", "j"), status: initial(ended("i", "Completed", 0, 0), waiting("j", "PodInitializing")), want: "0/2 Init:1/2 0"},
		"init crashes":          {init: containers("i"), status: initial(restarted(waiting("i", "CrashLoopBackOff"), 2, time.Hour)), want: "0/2 Init:CrashLoopBackOff 2 (60m ago)"},
		"init failed":           {init: containers("i"), status: initial(ended("i", "Error", 1, 0)), want: "0/2 Init:Error 0"},
		"sidecar counts":        {init: sidecar, status: corev1.PodStatus{Phase: corev1.PodRunning, InitContainerStatuses: []corev1.ContainerStatus{running("side", true)}, ContainerStatuses: []corev1.ContainerStatus{running("a", true), running("b", true)}}, want: "3/3 Running 0"},
		"gated":                 {status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonSchedulingGated}}}, want: "0/2 SchedulingGated 0"},
		"being deleted":         {status: phase(corev1.PodRunning, running("a", true), running("b", true)), edit: func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }, want: "2/2 Terminating 0"},
		"deleted after its end": {status: phase(corev1.PodSucceeded, ended("a", "Completed", 0, 0)), edit: func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }, want: "0/2 Completed 0"},
		"node lost":             {status: corev1.PodStatus{Phase: corev1.PodRunning, Reason: "NodeLost"}, edit: func(p *corev1.Pod) { p.DeletionTimestamp = &deleted }, want: "0/2 Unknown 0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: c.init, Containers: containers("a", "b")}, Status: c.status}
			if c.edit != nil {
				c.edit(p)
			}
			cells := row(p, noon)
			if got := fmt.Sprintf("%v %v %v", cells[1], cells[2], cells[3]); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestWideColumns(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1", ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "x"}, {ConditionType: "y"}}}}
	p.CreationTimestamp = metav1.NewTime(noon.Add(-3 * time.Hour))
	p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}}
	p.Status.Conditions = []corev1.PodCondition{{Type: "x", Status: corev1.ConditionTrue}, {Type: "y", Status: corev1.ConditionFalse}}
	if got, want := fmt.Sprint(row(p, noon)[4:]), "[3h 10.0.0.1 n1 <none> 1/2]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
