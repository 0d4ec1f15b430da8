package agent

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/nodestatus"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/testenv"
)

// wrongClock goes as fast as the real one and is wrong by so many nanoseconds.
type wrongClock struct {
	clock.RealClock
	by atomic.Int64
}

// Now implements clock.PassiveClock.
func (w *wrongClock) Now() time.Time { return time.Now().Add(time.Duration(w.by.Load())) }

// Since implements clock.PassiveClock.
func (w *wrongClock) Since(t time.Time) time.Duration { return w.Now().Sub(t) }

// TestAgentIn1970 starts an agent over running pods on a machine that has lost the time. What runs, runs on; what fails
// starts again, new pods start, and logs can be read; the Node says what is wrong. Then the clock jumps ahead.
func TestAgentIn1970(t *testing.T) {
	m := newMachine(t)
	env := testenv.Start(t)
	stop := startAgent(t, m, env, joinToken(t, env))
	runs := createPod(t, env, "runs")
	before := containersOf(t, m, runs)
	stop()

	wrong := &wrongClock{}
	wrong.by.Store(-int64(time.Since(time.Unix(600, 0))))
	startAgentBy(t, m, env, "", wrong)
	awaitClock(env, corev1.ConditionTrue, "ClockBehind")
	late := createPod(t, env, "late")
	first := containersOf(t, m, late)
	podstest.Must(t, m.services.Runtime.StopContainer(t.Context(), first[0], 0))
	podstest.Eventually(t, "what failed starts again", func() bool {
		now := containersOf(t, m, late)
		return len(now) == 1 && now[0] != first[0]
	})
	env.Eventually("its log can be read", func(ctx context.Context) error {
		stream, err := env.Client.CoreV1().Pods("default").GetLogs("late", &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = stream.Close() }()
		_, err = io.ReadAll(stream)
		return err
	})

	wrong.by.Store(0)
	awaitClock(env, corev1.ConditionFalse, "ClockInSync")
	if now := containersOf(t, m, runs); len(now) != 1 || now[0] != before[0] {
		t.Errorf("the containers of the pod that ran are %v, want %v as before", now, before)
	}
	createPod(t, env, "later")
}

// createPod makes a pod and waits until it is ready.
func createPod(t *testing.T, env *testenv.Env, name string) types.UID {
	t.Helper()
	pod := podstest.Pod(name, "sleep")
	pod.UID = ""
	env.Eventually("the pod "+name+" is ready", func(ctx context.Context) error {
		_, _ = env.Client.CoreV1().Pods("default").Create(ctx, pod.DeepCopy(), metav1.CreateOptions{}) // once is enough
		got, err := env.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && !podstest.IsReady(got) {
			err = fmt.Errorf("status %+v", got.Status)
		}
		if err == nil {
			pod = got
		}
		return err
	})
	return pod.UID
}

// containersOf are the running containers of a pod.
func containersOf(t *testing.T, m *machine, uid types.UID) (ids []string) {
	t.Helper()
	running, err := m.services.Runtime.ListContainers(t.Context(), &runtimeapi.ContainerFilter{
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(uid)}})
	podstest.Must(t, err)
	for _, c := range running {
		ids = append(ids, c.Id)
	}
	return ids
}

func awaitClock(env *testenv.Env, want corev1.ConditionStatus, reason string) {
	env.Eventually("the Node says of its clock "+reason, func(ctx context.Context) error {
		node, err := env.Client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := false
		for _, c := range node.Status.Conditions {
			ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		for _, c := range node.Status.Conditions {
			if c.Type == nodestatus.ClockSkew && c.Status == want && c.Reason == reason && ready {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", node.Status.Conditions)
	})
}
