package begun

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// TestWhatHasBegunIsReached: where a step is said to have begun without a look at the nodes, whoever looks at them goes
// on at that one or behind it, whatever was edited.
func TestWhatHasBegunIsReached(t *testing.T) {
	names, has := []string{"a", "b", "c", "d"}, 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		policy := func() *rolloutpolicy.Policy {
			var spec v1alpha1.RolloutPolicySpec
			for _, i := range r.Perm(len(names))[:1+r.IntN(len(names))] {
				room := &metav1.LabelSelector{MatchLabels: map[string]string{names[i]: "yes"}}
				spec.Waves = append(spec.Waves, v1alpha1.Wave{Name: names[i], Nodes: room})
			}
			p, err := rolloutpolicy.Compile(&spec, time.LoadLocation)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		before, now := policy(), policy()
		was, is := rolloutpolicy.NewFleet(before), rolloutpolicy.NewFleet(now)
		for n := range 1 + r.IntN(6) {
			labels := map[string]string{}
			for _, name := range names {
				if r.IntN(3) == 0 {
					labels[name] = "yes"
				}
			}
			was.Set(fmt.Sprint("n-", n), labels)
			is.Set(fmt.Sprint("n-", n), labels)
		}
		status := &v1alpha1.DaemonSetRolloutStatus{}
		for _, s := range was.Steps() {
			status.Steps = append(status.Steps, v1alpha1.StepStatus{Name: before.StepName(s)})
		}
		status.Step = status.Steps[r.IntN(len(status.Steps))].Name
		b := InStatus(now, status)
		for _, at := range is.Steps() {
			if !b.Has(now, at) {
				continue
			}
			has++
			if open := b.Furthest(now, is); open.Compare(at) < 0 {
				t.Fatalf("seed %d: %s has begun by %+v, and the furthest is %s", seed, now.StepName(at), b, now.StepName(open))
			}
		}
	}
	if has < 500 {
		t.Errorf("%d steps had begun", has)
	}
}
