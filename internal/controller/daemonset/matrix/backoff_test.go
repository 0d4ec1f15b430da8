package matrix

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestDefaultLimits(t *testing.T) {
	cfg := Config{}.withDefaults()
	if cfg.BurstReplicas != 250 || cfg.FailedPodBackoff != time.Second || cfg.MaxFailedPodBackoff != 15*time.Minute {
		t.Errorf("limits are %+v, want 250 creations, and 1s to 15m between failed pods", cfg)
	}
}

func TestFailureBackoff(t *testing.T) {
	cfg := Config{}.withDefaults()
	var b failureBackoff
	now := noon
	if !b.until(1).IsZero() {
		t.Error("the first failed pod waits")
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900} {
		b.next(1, "a", now, &cfg)
		if got := b.until(1).Sub(now); got != want*time.Second {
			t.Fatalf("the next failed pod waits %s, want %s", got, want*time.Second)
		}
		now = now.Add(want * time.Second)
	}
	if !b.until(2).IsZero() {
		t.Error("a new generation waits for the back-off of the old one")
	}
	quiet := b
	quiet.next(1, "a", now.Add(30*time.Minute+time.Second), &cfg)
	if quiet.delay != time.Second {
		t.Errorf("after half an hour without a failure the delay is %s, want 1s", quiet.delay)
	}
	b.next(2, "a", now, &cfg)
	if b.delay != time.Second {
		t.Errorf("in a new generation the delay is %s, want 1s", b.delay)
	}
}

// Failed pods, such as those that a kubelet refused or evicted, are evidence against their own revision and
// against no other.
func TestFailedPodsCountAgainstTheirRevision(t *testing.T) {
	for name, c := range map[string]struct {
		fails string        // the revision of the pods that fail
		well  time.Duration // how long the node is well before the rest is approved
		phase v1alpha1.Phase
	}{
		"the old one, a day ago": {"a", 24 * time.Hour, v1alpha1.PhaseComplete},
		"the old one, just now":  {"a", 0, v1alpha1.PhaseComplete},
		"the new one":            {"b", time.Hour, v1alpha1.PhaseRolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			w := following(t, 5, "waves: [{name: canary, count: 2, approval: Manual}]\nfailure: {then: Rollback}")
			w.update()
			w.passTurns(20)
			node := ""
			for _, p := range w.pods {
				if p.Revision == c.fails {
					node = p.Node
				}
			}
			for i := range 3 {
				if i > 0 {
					w.passTurns(20)
				}
				p := w.podsOf("logs", node)[0]
				if p.Revision != c.fails || !p.Ready {
					t.Fatalf("the pod that is to fail is %+v", p)
				}
				p.Phase, p.Ready, p.ReadySince = PodFailed, false, time.Time{}
				w.setPod(p)
			}
			if c.well > 0 {
				w.passTurns(20)
				w.tick(c.well)
			}
			rollout := w.rolloutOf("logs")
			rollout.Spec.Approved = &v1alpha1.StepApproval{Revision: "b", Step: v1alpha1.AllSteps}
			w.setRollout(rollout)
			w.passTurns(60)
			if s, _ := w.m.Rollout("logs"); s.Phase != c.phase {
				t.Errorf("the rollout is %s, want %s: %s", s.Phase, c.phase, s.Message)
			}
		})
	}
}
