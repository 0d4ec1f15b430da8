package probes

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that stops is asked whether it is ready, and not whether it is alive.
func TestKeepReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, lived atomic.Int32
		var unready atomic.Bool
		m := New(Config{Exec: func(_ context.Context, _ string, command []string, _ time.Duration) ([]byte, []byte, int32, error) {
			if command[0] == "alive" {
				lived.Add(1)
				return nil, nil, 0, nil
			}
			asked.Add(1)
			if unready.Load() {
				return nil, nil, 1, nil
			}
			return nil, nil, 0, nil
		}})
		probe := func(command string) *corev1.Probe {
			return &corev1.Probe{PeriodSeconds: 10, FailureThreshold: 1, SuccessThreshold: 1, TimeoutSeconds: 1,
				ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}}
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "main", LivenessProbe: probe("alive"), ReadinessProbe: probe("ready")}}}}
		m.Add(pod, "", "main", "id", time.Now())
		time.Sleep(time.Minute)
		synctest.Wait()
		if !m.State("u")["main"].Ready || lived.Load() == 0 {
			t.Fatalf("state %+v after %d probes of life", m.State("u")["main"], lived.Load())
		}
		m.KeepReadiness("u")
		synctest.Wait()
		before, questions := lived.Load(), asked.Load()
		unready.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if lived.Load() != before || asked.Load() == questions || m.State("u")["main"].Ready {
			t.Errorf("%d more probes of life and %d of readiness, state %+v; want none, some, and not ready",
				lived.Load()-before, asked.Load()-questions, m.State("u")["main"])
		}
		m.Remove("u")
		synctest.Wait()
	})
}
