package matrix

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

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
				p.Phase, p.Ready, p.ReadySince = fact.PodFailed, false, time.Time{}
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
