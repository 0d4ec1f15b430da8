package matrix

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// resizing is a DaemonSet on two nodes of which one may be without its daemon.
type resizing struct {
	*Matrix
	t    *testing.T
	now  time.Time
	set  fact.DaemonSet
	pods map[string]fact.Pod
}

func newResizing(t *testing.T) *resizing {
	w := &resizing{Matrix: New(row.Config{}), t: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		pods: map[string]fact.Pod{}}
	w.Step(fact.Now{Time: w.now})
	w.set = fact.DaemonSet{UID: "ds", Name: "ds", Placement: placement.Compile(&corev1.PodSpec{}),
		Strategy: fact.Strategy{MaxUnavailable: intstr.FromInt32(1)}}
	w.edit("t_a")
	for _, node := range []string{"n0", "n1"} {
		w.Step(fact.Node{Name: node})
		before := w.now.Add(-time.Hour)
		w.pods[node] = fact.Pod{UID: types.UID("pod-" + node), Name: node, Owner: "ds", Node: node, Bound: true,
			Revision: "t_a", Ready: true, ReadySince: before, Created: before}
		w.Step(w.pods[node])
	}
	w.wantResized("at first")
	return w
}

func (w *resizing) edit(revision string) {
	w.set.Generation++
	w.set.Revision = revision
	w.Step(w.set)
}

// see has the pod of a node be seen otherwise.
func (w *resizing) see(node string, change func(*fact.Pod)) {
	p := w.pods[node]
	change(&p)
	w.pods[node] = p
	w.Step(p)
}

// wantResized looks at what is to be resized now.
func (w *resizing) wantResized(when string, nodes ...string) (out []*action.ResizePod) {
	w.t.Helper()
	for _, a := range w.Ready() {
		if r, is := a.(*action.ResizePod); is {
			out = append(out, r)
		}
	}
	if len(out) != len(nodes) || len(out) == 1 && w.pods[nodes[0]].Name != "" && out[0].Node != nodes[0] {
		w.t.Fatalf("%s %v are resized, want those on %v", when, out, nodes)
	}
	return out
}

// soon is what is to be resized within ten seconds, where what is to be told is.
func (w *resizing) soon() (out []*action.ResizePod) {
	for range 10 {
		w.now = w.now.Add(time.Second)
		w.Step(fact.Now{Time: w.now})
		for _, a := range w.Ready() {
			switch a := a.(type) {
			case *action.ResizePod:
				out = append(out, a)
			case *action.UpdateRollout, *action.UpdateStatus:
				w.Step(action.Answer{Action: a, Outcome: action.OK})
			}
		}
	}
	return out
}

// resized looks at what soon is.
func (w *resizing) resized(when string, nodes ...string) []*action.ResizePod {
	w.t.Helper()
	out := w.soon()
	if len(out) != len(nodes) {
		w.t.Fatalf("%s %v are resized, want %v", when, out, nodes)
	}
	return out
}

// A pod that is being resized counts as taken until what was asked for is seen, also where another revision comes
// meanwhile by which its own is called otherwise.
func TestAResizeUnderWayCountsWhateverThePodIsCalled(t *testing.T) {
	w := newResizing(t)
	w.edit("t_b")
	first := w.wantResized("after an edit", "n0")[0]
	w.edit("t_c")
	w.see(first.Node, func(p *fact.Pod) { p.Revision = "t_drifted" })
	w.wantResized("before there is an answer")
	w.Step(action.Answer{Action: first, Outcome: action.OK})
	w.wantResized("before anything is seen")
	w.see(first.Node, func(p *fact.Pod) { p.Revision = "t_c" }) // which has the amounts that it had
	w.wantResized("before more is seen than another name")
	w.see(first.Node, func(p *fact.Pod) { p.Resized, p.Pointed, p.Revision = true, first.At, "t_b" })
	again := w.wantResized("while the node is at it", first.Node)[0] // which is taken already
	w.Step(action.Answer{Action: again, Outcome: action.OK})
	w.see(first.Node, func(p *fact.Pod) { p.Pointed, p.Mounted, p.Revision = again.At, w.now, "t_c" })
	w.wantResized("when it is done", "the other")
}

// A resize that got no answer may be done, also if the pod is called as it was to be by then for another reason, such as
// other labels of its node. It counts until what was asked for is seen, or for as long as an answer is waited for.
func TestAResizeWithoutAnAnswerCountsWhateverThePodIsCalled(t *testing.T) {
	for _, seen := range []bool{true, false} {
		w := newResizing(t)
		w.edit("t_b")
		first := w.wantResized("after an edit", "n0")[0]
		w.see(first.Node, func(p *fact.Pod) { p.Revision = "t_b" })
		w.Step(action.Answer{Action: first, Outcome: action.Unknown})
		w.resized("while nobody knows whether it was written")
		if seen {
			w.see(first.Node, func(p *fact.Pod) { p.Resized, p.Pointed, p.Revision = true, first.At, "t_drifted" })
			w.resized("when it is seen", first.Node)
			continue
		}
		w.now = w.now.Add(5 * time.Minute)
		w.resized("when no answer is waited for any more", "the other")
	}
}

// A resize that ended half way counts until its node has given what was asked for: it may restart containers.
func TestAResizeThatEndsHalfWay(t *testing.T) {
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	for name, limits := range map[string]fact.Strategy{
		"unavailable": {MaxUnavailable: one}, "surge": {MaxUnavailable: none, MaxSurge: one},
	} {
		t.Run(name, func(t *testing.T) {
			w := newResizing(t)
			w.set.Strategy = limits
			w.edit("t_b")
			first := w.wantResized("after an edit", "n0")[0]
			w.see(first.Node, func(p *fact.Pod) { p.Between = true })
			w.Step(action.Answer{Action: first, Outcome: action.Failed})
			w.edit("t_c")
			w.wantResized("before it is tried once more")
			w.now = w.now.Add(time.Second)
			w.Step(fact.Now{Time: w.now})
			again := w.wantResized("after the failure", first.Node)[0]
			w.Step(action.Answer{Action: again, Outcome: action.Failed})
			w.see(first.Node, func(p *fact.Pod) { p.Between = false })
			w.wantResized("when the node has given it", "one of both")
		})
	}
}

// A pod that is to be resized is done with a step by no other name: what is asked for may still come.
func TestAStepWaitsForAResizeWhateverThePodIsCalled(t *testing.T) {
	w := newResizing(t)
	policy, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{{Name: "first", Count: new(int32(1))}}},
		time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	w.Step(fact.Rollout{UID: "ds", PolicyUID: "p", Policy: policy})
	w.resized("at first")
	w.edit("t_b")
	first := w.resized("after an edit", "the first")[0]
	w.edit("t_c")
	w.see(first.Node, func(p *fact.Pod) { p.Revision = "t_c" }) // which has the amounts that it had
	w.resized("before there is an answer")
	if s, _ := w.Rollout("ds"); s.Step != "first" {
		t.Errorf("it is at step %q, want the first: %s", s.Step, s.Message)
	}
}

// What a resize has written shows by its time alone, before the answer or after it. That the pod is called by the
// revision says nothing: another one may have come that has it called so again.
func TestAResizeIsWaitedForThoughThePodIsCalledSo(t *testing.T) {
	for _, early := range []bool{false, true} {
		w := newResizing(t)
		w.edit("t_b")
		first := w.wantResized("after an edit", "n0")[0]
		shows := func() {
			w.see(first.Node, func(p *fact.Pod) { p.Resized, p.Pointed, p.Mounted, p.Revision = true, first.At, w.now, "t_b" })
		}
		if early {
			shows()
			w.wantResized("before there is an answer", "the other")
			w.Step(action.Answer{Action: first, Outcome: action.OK})
			w.wantResized("after it")
			continue
		}
		w.edit("t_c")
		w.see(first.Node, func(p *fact.Pod) { p.Revision = "t_b" })
		w.wantResized("before there is an answer")
		w.Step(action.Answer{Action: first, Outcome: action.OK})
		w.wantResized("before it shows")
		shows()
		w.wantResized("when it shows", "one of both")
	}
}

// What another process has asked for may show while a resize is under way. That goes on, and no other one begins.
func TestAResizeUnderWayOutlivesAnotherProcesses(t *testing.T) {
	w := newResizing(t)
	w.edit("t_b")
	w.edit("t_c")
	first := w.wantResized("after two edits", "n0")[0]
	others := first.At.Add(-time.Millisecond)
	w.see(first.Node, func(p *fact.Pod) { p.Resized, p.Pointed, p.Mounted, p.Revision = true, others, w.now, "t_b" })
	w.wantResized("when the other one shows")
	w.Step(action.Answer{Action: first, Outcome: action.Failed})
	w.wantResized("when it was too late", "one of both")
}

// A resize that shows is done, also before it is answered. Where the steps begin again meanwhile, its node waits for its
// own with what it has: its daemon works, and is none to be taken as if it did not.
func TestAResizeThatShowsBeforeItsAnswerIsDone(t *testing.T) {
	w := newResizing(t)
	policy, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{{Name: "first", Count: new(int32(1))}}},
		time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	w.Step(fact.Rollout{UID: "ds", PolicyUID: "p", Policy: policy})
	w.resized("at first")
	w.edit("t_b")
	first := w.resized("after an edit", "the first")[0]
	shows := func(a *action.ResizePod) {
		w.see(a.Node, func(p *fact.Pod) { p.Resized, p.Pointed, p.Mounted, p.Revision = true, a.At, w.now, a.Revision })
	}
	shows(first)
	w.Step(action.Answer{Action: first, Outcome: action.OK})
	other := w.resized("when it is done", "the other")[0]
	w.edit("t_c")
	shows(other)
	got := w.soon()
	w.Step(action.Answer{Action: other, Outcome: action.OK})
	got = append(got, w.soon()...)
	if len(got) != 1 || got[0].Node != first.Node || got[0].Revision != "t_c" {
		t.Errorf("%v are resized, want that on %s to t_c alone", got, first.Node)
	}
}

// An answer that comes late is none to what has been asked for since, which is told apart from what showed at once.
func TestALateAnswerIsNoneToTheNextResize(t *testing.T) {
	w := newResizing(t)
	w.edit("t_b")
	first := w.wantResized("after an edit", "n0")[0]
	w.see("n0", func(p *fact.Pod) { p.Resized, p.Pointed, p.Mounted, p.Revision = true, first.At, w.now, "t_b" })
	w.edit("t_c")
	second := w.wantResized("after another one", "n0")[0]
	w.Step(action.Answer{Action: first, Outcome: action.Failed})
	w.wantResized("when the first one is answered")
	w.Step(action.Answer{Action: second, Outcome: action.OK})
	w.wantResized("when the second one is")
	w.see("n0", func(p *fact.Pod) { p.Pointed, p.Revision = second.At, "t_c" })
	w.wantResized("when that shows", "n1")
}
