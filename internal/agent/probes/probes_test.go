package probes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// script is a container whose exec probes answer as told, and a diary of what happened, in seconds since its start.
type script struct {
	begin time.Time

	mu      sync.Mutex
	answers map[string]func(second int) error // by command; nil is success
	diary   []string
}

var errFails = errors.New("fails")

func newScript() *script {
	return &script{begin: time.Now(), answers: map[string]func(int) error{}}
}

func (s *script) second() int { return int(time.Since(s.begin) / time.Second) }

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.diary = append(s.diary, fmt.Sprintf("%d ", s.second())+fmt.Sprintf(format, args...))
}

func (s *script) exec(_ context.Context, id string, cmd []string, _ time.Duration) ([]byte, []byte, int32, error) {
	s.note("%s %s", cmd[0], id)
	s.mu.Lock()
	answer := s.answers[cmd[0]]
	s.mu.Unlock()
	if answer == nil {
		return nil, nil, 0, nil
	}
	switch err := answer(s.second()); {
	case err == nil:
		return nil, nil, 0, nil
	case errors.Is(err, errFails):
		return []byte("out "), []byte("err"), 3, nil
	default:
		return nil, nil, 0, err
	}
}

func (s *script) manager() *Manager {
	return New(Config{
		Exec: s.exec, Spread: time.Nanosecond,
		OnChange: func(uid types.UID) { s.note("change of %s", uid) },
		OnEvent: func(_ *corev1.Pod, container, eventType, reason, message string) {
			s.note("%s %s %s %s", eventType, reason, container, message)
		},
	})
}

func (s *script) expect(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.diary, want) {
		t.Errorf("what happened:\n  %s\nwant:\n  %s", strings.Join(s.diary, "\n  "), strings.Join(want, "\n  "))
	}
	s.diary = nil
}

func execProbe(command string, delay, period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command}}},
		InitialDelaySeconds: delay, PeriodSeconds: period, FailureThreshold: failures,
	}
}

func podWith(container corev1.Container) *corev1.Pod {
	container.Name = "main"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
	}
}

func wantState(t *testing.T, m *Manager, want State) {
	t.Helper()
	if got := m.State("u")["main"]; got != want {
		t.Errorf("state %+v, want %+v", got, want)
	}
}

// pass lets seconds go by and everything in them happen.
func pass(seconds float64) {
	time.Sleep(time.Duration(seconds * float64(time.Second)))
	synctest.Wait()
}

func TestNoProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newScript().manager()
		m.Add(podWith(corev1.Container{}), "10.0.0.1", "main", "c1", time.Now())
		wantState(t, m, State{ContainerID: "c1", Started: true, Ready: true})
		m.Add(podWith(corev1.Container{}), "10.0.0.1", "other", "c1", time.Now())
		if states := m.State("u"); len(states) != 1 {
			t.Errorf("a container that the pod doesn't have gets a state: %v", states)
		}
		m.Remove("u")
		if states := m.State("u"); len(states) != 0 {
			t.Errorf("after Remove there is %v", states)
		}
	})
}

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.answers["ready"] = func(second int) error {
			if second >= 20 && second < 40 {
				return errFails
			}
			return nil
		}
		m := s.manager()
		defer m.Remove("u")
		pod := podWith(corev1.Container{ReadinessProbe: execProbe("ready", 5, 10, 2)})
		m.Add(pod, "10.0.0.1", "main", "c1", time.Now())
		pass(4.9)
		s.expect(t)
		wantState(t, m, State{ContainerID: "c1", Started: true})
		pass(0.2)
		s.expect(t, "5 ready c1", "5 change of u")
		wantState(t, m, State{ContainerID: "c1", Started: true, Ready: true})
		m.Add(pod, "10.0.0.1", "main", "c1", time.Now()) // again, which changes nothing
		pass(20)
		const failed = "Warning Unhealthy main Readiness probe failed: out err"
		s.expect(t, "15 ready c1", "25 ready c1", "25 "+failed)
		wantState(t, m, State{ContainerID: "c1", Started: true, Ready: true})
		pass(10)
		s.expect(t, "35 ready c1", "35 "+failed, "35 change of u")
		wantState(t, m, State{ContainerID: "c1", Started: true})
		pass(10)
		s.expect(t, "45 ready c1", "45 change of u")
		wantState(t, m, State{ContainerID: "c1", Started: true, Ready: true})
	})
}

func TestStartupHoldsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.answers["start"] = func(second int) error {
			if second < 4 {
				return errFails
			}
			return nil
		}
		m := s.manager()
		defer m.Remove("u")
		m.Add(podWith(corev1.Container{
			StartupProbe: execProbe("start", 0, 2, 5), LivenessProbe: execProbe("live", 0, 60, 1), ReadinessProbe: execProbe("ready", 0, 60, 1),
		}), "10.0.0.1", "main", "c1", time.Now())
		const failed = "Warning Unhealthy main Startup probe failed: out err"
		pass(3)
		s.expect(t, "0 start c1", "0 "+failed, "2 start c1", "2 "+failed)
		wantState(t, m, State{ContainerID: "c1"})
		pass(1.5)
		if got := m.State("u")["main"]; !got.Started || !got.Ready {
			t.Errorf("after the startup probe's success: %+v", got)
		}
		s.mu.Lock()
		slices.Sort(s.diary)
		s.mu.Unlock()
		s.expect(t, "4 change of u", "4 change of u", "4 live c1", "4 ready c1", "4 start c1")
		pass(20)
		s.expect(t)
	})
}

func TestLivenessFails(t *testing.T) {
	seconds := int64(7)
	probe := execProbe("live", 0, 10, 2)
	probe.TerminationGracePeriodSeconds = &seconds
	tests := []struct {
		name      string
		container corev1.Container
		want      string
		started   bool
	}{
		{"liveness", corev1.Container{LivenessProbe: probe}, "Container main failed liveness probe, will be restarted", true},
		{"startup", corev1.Container{StartupProbe: probe}, "Container main failed startup probe, will be restarted", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript()
				s.answers["live"] = func(int) error { return errFails }
				m := s.manager()
				defer m.Remove("u")
				m.Add(podWith(test.container), "10.0.0.1", "main", "c1", time.Now())
				pass(9)
				if m.State("u")["main"].LivenessFailed {
					t.Error("one failure is enough, want two")
				}
				pass(100)
				wantState(t, m, State{ContainerID: "c1", Started: test.started, Ready: test.started, LivenessFailed: true, Message: test.want, TerminationGracePeriodSeconds: &seconds})
				s.mu.Lock()
				calls := len(slices.DeleteFunc(slices.Clone(s.diary), func(line string) bool { return !strings.HasSuffix(line, "live c1") }))
				s.mu.Unlock()
				if calls != 2 {
					t.Errorf("probed %d times, want 2: a failed container is not probed on", calls)
				}
				m.Add(podWith(test.container), "10.0.0.1", "main", "c2", time.Now())
				if got := m.State("u")["main"]; got.LivenessFailed || got.ContainerID != "c2" {
					t.Errorf("the next life begins with %+v", got)
				}
			})
		})
	}
}

func TestErrorsDontCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.answers["live"] = func(int) error { return errors.New("runtime is away") }
		m := s.manager()
		defer m.Remove("u")
		m.Add(podWith(corev1.Container{LivenessProbe: execProbe("live", 0, 1, 1)}), "10.0.0.1", "main", "c1", time.Now())
		pass(1.5)
		const errored = "Warning Unhealthy main Liveness probe errored and resulted in unknown state: runtime is away"
		s.expect(t, "0 live c1", "0 "+errored, "1 live c1", "1 "+errored)
		if m.State("u")["main"].LivenessFailed {
			t.Error("an error of the check itself counts as a failure")
		}
		s.mu.Lock()
		s.answers["live"] = func(int) error { return fmt.Errorf("exec: %w", context.DeadlineExceeded) }
		s.mu.Unlock()
		pass(1)
		s.expect(t, "2 live c1", `2 Warning Unhealthy main Liveness probe failed: command timed out: "live" timed out after 1s`, "2 change of u")
	})
}

// TestRestartOfTheAgent begins where the pod's status was.
func TestRestartOfTheAgent(t *testing.T) {
	yes := true
	tests := []struct {
		name, id string
		want     State
	}{
		{"same life", "c1", State{ContainerID: "c1", Started: true, Ready: true}},
		{"another life", "c2", State{ContainerID: "c2"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScript()
				s.answers["ready"] = func(int) error { return errFails }
				m := s.manager()
				defer m.Remove("u")
				pod := podWith(corev1.Container{StartupProbe: execProbe("start", 99, 10, 2), ReadinessProbe: execProbe("ready", 0, 10, 2)})
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
					Name: "main", ContainerID: "containerd://c1", Started: &yes, Ready: true,
					State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				}}
				m.Add(pod, "10.0.0.1", "main", test.id, time.Now())
				wantState(t, m, test.want)
				pass(1)
				wantState(t, m, test.want) // one failure doesn't make it unready yet
				pass(10)
				wantState(t, m, State{ContainerID: test.id, Started: test.want.Started})
			})
		})
	}
}
