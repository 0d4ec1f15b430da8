package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/testenv"
)

func TestShutdownEndsCriticalPodsLast(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startPods(t, r, a)
	ordinary, critical := boxPod("ordinary"), boxPod("critical")
	critical.Spec.Priority = ptr(int32(2000001000))
	a.create(ordinary)
	a.create(critical)
	a.watch(p)
	p.RuntimeListed(nil)
	for _, pod := range []*corev1.Pod{ordinary, critical} {
		a.await(t, pod.UID, "to be ready", isReady)
	}
	for len(r.done) > 0 {
		<-r.done
	}
	announced := false
	s := &shutdown{grace: 2 * time.Minute, critical: time.Minute, pods: p, clock: clock.RealClock{},
		announce: func() { announced = true }, reported: func() bool { return true }}
	s.run(t.Context())
	if !announced {
		t.Error("the node did not say that it shuts down")
	}
	for _, pod := range []*corev1.Pod{ordinary, critical} {
		got := a.await(t, pod.UID, "to have ended", hasPhase(corev1.PodFailed))
		if got.Status.Reason != "Terminated" || got.Status.Message != "Pod was terminated in response to imminent node shutdown." {
			t.Errorf("%s ended with %q, %q", pod.Name, got.Status.Reason, got.Status.Message)
		}
	}
	r.await(t, "kill uid-ordinary-main-0")
	var order []string
	for len(r.done) > 0 {
		order = append(order, <-r.done)
	}
	killed := -1
	for i, call := range order {
		if call == "kill uid-critical-main-0" {
			killed = i
		}
	}
	if killed < 0 {
		t.Errorf("after the ordinary pod the runtime was asked for %q, want the end of the critical one", order)
	}
	late := boxPod("late")
	a.create(late)
	if got := a.await(t, late.UID, "to be refused", hasPhase(corev1.PodFailed)); got.Status.Reason != "NodeShutdown" {
		t.Errorf("a pod that comes late: %q, %q", got.Status.Reason, got.Status.Message)
	}
}

func TestShutdownDoesNotWaitForEver(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startPods(t, r, a)
	pod := boxPod("stubborn")
	a.create(pod)
	a.watch(p)
	p.RuntimeListed(nil)
	a.await(t, pod.UID, "to be ready", isReady)
	// Nobody hears that it ended: it keeps its room.
	p.mu.Lock()
	p.admitted["ghost"] = boxPod("ghost")
	p.mu.Unlock()
	s := &shutdown{grace: time.Millisecond, pods: p, clock: clock.RealClock{}, announce: func() {}, reported: func() bool { return true }}
	s.run(t.Context())
}

// An upgrade of the program is no reason to end pods.
func TestPodsEndWithTheMachineOnly(t *testing.T) {
	there, away := t.TempDir(), filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		dir, state string
		err        error
		want       bool
	}{
		{away, "", errors.New("no systemd to ask"), true},
		{there, "running", nil, false},
		{there, "degraded", nil, false},
		{there, "starting", nil, false},
		{there, "stopping", nil, true},
		{there, "", errors.New("no answer"), true},
	} {
		got := machineStops(t.Context(), c.dir, func(context.Context) (string, error) { return c.state, c.err })
		if got != c.want {
			t.Errorf("%+v: the machine stops: %v", c, got)
		}
	}
}

// TestNodeShutsDownInOrder ends a whole agent, with a container that would run on, and looks what the API knows afterwards.
func TestNodeShutsDownInOrder(t *testing.T) {
	m := newMachine(t)
	env := testenv.Start(t)
	stop := startAgent(t, m, env, joinToken(t, env), func(c *config.Config) { c.ShutdownGrace = time.Minute })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: corev1.PodSpec{
		NodeName: "n1", HostNetwork: true, TerminationGracePeriodSeconds: ptr(int64(1)), AutomountServiceAccountToken: ptr(false),
		Containers: []corev1.Container{{Name: "main", Image: boxImage, Args: []string{"sleep"}}},
	}}
	pod, err := env.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	env.Eventually("the pod runs", func(ctx context.Context) error {
		got, err := env.Client.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
		if err == nil && !isReady(got) {
			err = fmt.Errorf("status %+v", got.Status)
		}
		return err
	})
	stop()
	got, err := env.Client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	must(t, err)
	if got.Status.Phase != corev1.PodFailed || got.Status.Reason != "Terminated" {
		t.Errorf("the pod is %s, %q, want that it was ended by the shutdown", got.Status.Phase, got.Status.Reason)
	}
	node, err := env.Client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	must(t, err)
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "node is shutting down")) {
			t.Errorf("the node's condition is %+v, want that it shuts down", c)
		}
	}
	containers, err := m.services.Runtime.ListContainers(t.Context(), nil)
	must(t, err)
	for _, c := range containers {
		if c.Labels["io.kubernetes.pod.uid"] == string(pod.UID) && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("container %s runs on", c.Metadata.Name)
		}
	}
}
