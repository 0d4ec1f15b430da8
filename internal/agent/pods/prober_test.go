package pods_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/probes"
)

// A container has the grace period of the probe that failed, whichever other probes it has.
func TestGraceOfTheFailedProbe(t *testing.T) {
	probe := func(command string, grace *int64) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1,
			TerminationGracePeriodSeconds: grace,
			ProbeHandler:                  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}}}
	}
	const good, bad = "good", "bad"
	for _, test := range []struct {
		name              string
		liveness, startup *corev1.Probe
		want              int64
		message           string
	}{
		{"liveness alone", probe(bad, new(int64(5))), nil, 5, "Container c failed liveness probe, will be restarted"},
		{"liveness after a startup probe without one", probe(bad, new(int64(5))), probe(good, nil), 5,
			"Container c failed liveness probe, will be restarted"},
		{"liveness without one after a startup probe", probe(bad, nil), probe(good, new(int64(7))), 3600,
			"Container c failed liveness probe, will be restarted"},
		{"startup before liveness", probe(good, new(int64(5))), probe(bad, new(int64(7))), 7,
			"Container c failed startup probe, will be restarted"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}}
				pod.Spec.TerminationGracePeriodSeconds = new(int64(3600))
				pod.Spec.Containers = []corev1.Container{{Name: "c", LivenessProbe: test.liveness, StartupProbe: test.startup}}
				manager := probes.New(probes.Config{Exec: func(_ context.Context, _ string, cmd []string, _ time.Duration) ([]byte,
					[]byte, int32, error) {
					if cmd[0] == bad {
						return nil, nil, 1, nil
					}
					return nil, nil, 0, nil
				}})
				p := pods.Probes{Manager: manager}
				defer p.Stop("u")
				p.Start(pod, "10.0.0.1", "c", "id", time.Now())
				time.Sleep(10 * time.Second)
				synctest.Wait()
				plan := podworker.Decide(podworker.Input{Pod: pod, Probes: p.Results("u"), Memory: &podworker.Memory{},
					Now: time.Now(),
					Runtime: &podworker.Runtime{
						Sandboxes:  []podworker.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}},
						Containers: []podworker.Container{{ID: "id", Name: "c", SandboxID: "s", State: podworker.Running}},
					}})
				if len(plan.Actions) == 0 {
					t.Fatal("nothing is done")
				}
				got := plan.Actions[0]
				if got.Kind != podworker.KillContainer || got.Reason != podworker.KillProbeFailed || got.Grace != test.want ||
					got.Message != test.message {
					t.Errorf("%s %q, want a grace of %d and %q", got, got.Message, test.want, test.message)
				}
			})
		})
	}
}
