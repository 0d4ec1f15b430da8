package recall

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/volumes"
)

// Pods that ended with their node start again with it, also where nobody is there to replace them. What ended for
// another reason, or is never to start again, stays ended.
func TestPodsThatEndedWithTheNode(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		policy corev1.RestartPolicy
		ended  bool
	}{
		"at the shutdown":            {"Terminated", corev1.RestartPolicyAlways, false},
		"refused at the shutdown":    {"NodeShutdown", corev1.RestartPolicyAlways, false},
		"evicted":                    {"Evicted", corev1.RestartPolicyAlways, true},
		"at the shutdown, for good":  {"Terminated", corev1.RestartPolicyNever, true},
		"a Job's, at the shutdown":   {"Terminated", corev1.RestartPolicyOnFailure, false},
		"failed by its own deadline": {"DeadlineExceeded", corev1.RestartPolicyAlways, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podWith()
			pod.Spec.RestartPolicy = c.policy
			dir := t.TempDir()
			keep(t, filepath.Join(dir, podsFile), remember.Pod{
				Pod: pod, Ended: &corev1.PodStatus{Phase: corev1.PodFailed, Reason: c.reason},
			})
			r, err := Open(t.Context(), Config{
				DataDir: dir, Client: fake.NewClientset(), Secrets: config.RememberNoSecrets, Clock: clock.RealClock{},
				Tokens: func() []volumes.Token { return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Pods.Pods; len(got) != 1 || (got[0].Ended != nil) != c.ended {
				t.Errorf("the next run knows %+v", got)
			}
			if got := r.Book.List(); len(got) != 1 || (got[0].Ended != nil) != c.ended {
				t.Errorf("its book has %+v", got)
			}
		})
	}
}
