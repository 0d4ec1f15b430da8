package pods_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/pods/podstest"
)

// hookRuntime runs commands that fail if they are called bad.
type hookRuntime struct{ *podstest.Runtime }

func (r hookRuntime) ExecSync(_ context.Context, id string, cmd []string, _ time.Duration) (stdout, stderr []byte,
	exitCode int32, err error) {
	r.Done <- "exec " + cmd[0] + " in " + id
	if cmd[0] == "bad" {
		return nil, nil, 1, nil
	}
	return nil, nil, 0, nil
}

// A container whose postStart hook fails is stopped as any other one, with its preStop hook.
func TestFailedPostStart(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, hookRuntime{r}, a)
	pod := podstest.Pod("p")
	run := func(command string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{command}}}
	}
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: run("bad"), PreStop: run("drain")}
	a.Create(pod)
	a.Watch(p)
	p.RuntimeListed(nil)
	for _, want := range []string{"sandbox p", "start p/main", "exec bad in uid-p-main-0", "exec drain in uid-p-main-0",
		"kill uid-p-main-0"} {
		r.Await(t, want)
	}
	a.AwaitEvent(t, "p: Warning FailedPostStartHook spec.containers{main} PostStartHook failed")
	a.AwaitEvent(t, "p: Normal Killing spec.containers{main} FailedPostStartHook")
}
