package rolloutpolicy

import (
	"fmt"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
)

func byNumber(t *testing.T) *Policy {
	t.Helper()
	return compiled(t, v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{
		{Name: "canary", Count: ptr.To[int32](3)},
		{Name: "racks", Percent: ptr.To[int32](20), SpreadBy: "rack"},
		{Name: "room", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"room": "a"}},
			Ramp: &v1alpha1.Ramp{From: ptr.To[int32](1), Factor: ptr.To[int32](2)}},
		{Name: "zones", Each: "zone"},
	}})
}

// churn has a node come, go, or get other labels.
func churn(r *rand.Rand, f *Fleet, labels map[string]map[string]string) {
	name := fmt.Sprint("n-", r.IntN(80))
	if r.IntN(4) == 0 {
		delete(labels, name)
		f.Delete(name)
		return
	}
	labels[name] = map[string]string{"rack": fmt.Sprint(r.IntN(3)), "room": string("ab"[r.IntN(2)]),
		"zone": string("xyz"[r.IntN(3)])}
	f.Set(name, labels[name])
}

// TestStepsFollowFromCutoffs: who knows a node's labels and the cutoffs tells its step as who knows all nodes does. By
// cutoffs that were written before other nodes came, and that cover those of now, nobody is left out.
func TestStepsFollowFromCutoffs(t *testing.T) {
	p := byNumber(t)
	covered, uncovered, begun := 0, 0, 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		f, labels := NewFleet(p), map[string]map[string]string{}
		var written *v1alpha1.Cutoffs
		var open Step
		for range 300 {
			churn(r, f, labels)
			if steps := f.Steps(); written == nil || r.IntN(10) == 0 {
				open = Step{}
				if len(steps) > 0 {
					open = steps[r.IntN(len(steps))]
				}
				written = f.Cutoffs(open, 1)
				for name := range labels {
					at, _ := f.Step(name)
					got := p.StepBy(name, labels[name], written.Steps)
					if got != at && (at.Compare(open) <= 0 || got.Compare(open) <= 0) {
						t.Fatalf("seed %d: up to %+v the step of %s is %+v by the cutoffs %+v, and %+v by all nodes", seed, open,
							name, got, written, at)
					}
				}
			}
			if !Covers(written, f.Cutoffs(open, 1)) {
				uncovered++
				continue
			}
			covered++
			for name := range labels {
				at, _ := f.Step(name)
				if at.Compare(open) > 0 {
					continue
				}
				begun++
				if got := p.StepBy(name, labels[name], written.Steps); got.Compare(open) > 0 {
					t.Fatalf("seed %d: %s is in %+v, which has begun, and in %+v by what is written", seed, name, at, got)
				}
			}
		}
	}
	if min(covered, uncovered, begun) < 100 {
		t.Errorf("%d times the cutoffs covered those of now, %d times they did not; %d nodes were in steps that had begun",
			covered, uncovered, begun)
	}
}

// TestCutoffsAreBounded: where a label has too many values none are named, and whoever reads them sees that.
func TestCutoffsAreBounded(t *testing.T) {
	f := NewFleet(byNumber(t))
	for i := range 5 * (MaxCutoffs + 10) {
		f.Set(fmt.Sprint("n-", i), map[string]string{"rack": fmt.Sprint(i / 5)})
	}
	if c := f.Cutoffs(Step{}, 1); c.Incomplete || len(c.Steps) != 1 {
		t.Errorf("of the canary alone there are %+v", c)
	}
	if c := f.Cutoffs(Step{Wave: 1}, 1); !c.Incomplete || c.Steps != nil {
		t.Errorf("%d cutoffs are named, and that they are incomplete is %v", len(c.Steps), c.Incomplete)
	}
}

// TestCutoffsOfAnotherPolicyCoverNothing: its steps have the same names, and other nodes.
func TestCutoffsOfAnotherPolicyCoverNothing(t *testing.T) {
	f := NewFleet(byNumber(t))
	f.Set("n", nil)
	now := f.Cutoffs(Step{}, 2)
	if Covers(nil, now) || Covers(f.Cutoffs(Step{}, 1), now) || !Covers(nil, nil) || !Covers(now.DeepCopy(), now) {
		t.Error("what is written covers what it does not, or does not cover the same")
	}
}

// TestWhoTakesAllNodes: what is said of every node holds for any node, and where it is not said some node is not in the
// steps so far.
func TestWhoTakesAllNodes(t *testing.T) {
	room := &metav1.LabelSelector{MatchLabels: map[string]string{"room": "a"}}
	ramp := &v1alpha1.Ramp{From: ptr.To[int32](1), Factor: ptr.To[int32](2)}
	some := 0
	for _, waves := range [][]v1alpha1.Wave{
		{{Name: "all", Nodes: &metav1.LabelSelector{}}},
		{{Name: "canary", Count: ptr.To[int32](3)}, {Name: "room", Nodes: room}, {Name: "zones", Each: "zone"}},
		{{Name: "canary", Percent: ptr.To[int32](10)}, {Name: "room", Nodes: room, Ramp: ramp}},
		{{Name: "room", Nodes: room, Ramp: ramp}, {Name: "all", Nodes: &metav1.LabelSelector{}, Ramp: ramp}},
	} {
		p := compiled(t, v1alpha1.RolloutPolicySpec{Waves: waves})
		all := map[Step]bool{}
		for _, l := range p.levels() {
			for _, zone := range []string{"", "x", "z"} {
				of := map[string]string{"zone": zone}
				if zone == "" {
					of = nil
				}
				all[p.stepAt(&l, of)] = true
			}
		}
		for upTo := range all {
			left := false
			for i := range 60 {
				of := map[string]string{"room": string("ab"[i%2]), "zone": string("xyz"[i%3])}
				if i%7 == 0 {
					delete(of, "zone")
				}
				left = left || p.StepBy(fmt.Sprint("n-", i), of, nil).Compare(upTo) > 0
			}
			is := p.TakesAll(upTo)
			if is && left {
				t.Errorf("of %+v all nodes are said to be in steps up to %+v", waves, upTo)
			}
			if !is && !left && upTo != (Step{Wave: 2, None: true}) { // the last value: nobody knows that there is no other
				t.Errorf("of %+v all nodes are in steps up to %+v", waves, upTo)
			}
			if is {
				some++
			}
		}
	}
	if some < 5 {
		t.Errorf("%d steps take all nodes", some)
	}
}
