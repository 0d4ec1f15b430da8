package variants

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// An API that does not answer is asked again after longer and longer, and nodes are changed without its word in the
// end. What it refuses is asked again after a minute, what it takes never.
func TestTrialsAreTriedAgain(t *testing.T) {
	w := newWorld()
	w.Tries = true
	w.setNode("n", "l", 4)
	w.begin()
	w.make("p", "n", w.newest())
	w.setVariant("l", "l", 0, 5, 0)
	w.settle()
	now := start
	ask := func(after time.Duration) *Trial {
		t.Helper()
		w.Tick(now.Add(after - time.Millisecond))
		if early := w.Trials(); len(early) > 0 {
			t.Errorf("it is tried before %s", after)
		}
		now = now.Add(after)
		w.Tick(now)
		trials := w.Trials()
		if len(trials) != 1 || trials[0].Node != "n" || trials[0].Variant != "l" {
			t.Fatalf("trials are %+v", trials)
		}
		if again := w.Trials(); len(again) > 0 {
			t.Error("it is tried twice at once")
		}
		return trials[0]
	}
	first := w.Trials()
	if len(first) != 1 {
		t.Fatalf("trials are %+v", first)
	}
	w.TellVerdict(Verdict{Trial: first[0], Unsure: true})
	for i := 1; i < mostTrials; i++ {
		w.settle()
		if w.newest() != "t" {
			t.Fatal("nodes are changed before the API has answered")
		}
		if at, ok := w.NextTick(); !ok || !at.Equal(now.Add(time.Second<<i)) {
			t.Errorf("the next turn is at %s", at)
		}
		w.TellVerdict(Verdict{Trial: ask(time.Second << i), Unsure: true})
	}
	w.settle()
	if variantsOf(w.newest()) == "" {
		t.Error("an API that never answers has variants wait for ever")
	}

	w.setVariant("l", "l", 0, 6, 0)
	w.settle()
	had := w.newest()
	w.TellVerdict(Verdict{Trial: w.Trials()[0], Refused: "no"})
	w.settle()
	if w.newest() != had || w.sets["ds"].told.Held {
		t.Error("what is refused is given to nodes, or they are held with what they have")
	}
	w.TellVerdict(Verdict{Trial: ask(triedAgain)})
	w.settle()
	if w.newest() == had {
		t.Error("what is taken is not given to nodes")
	}
	w.Tick(now.Add(time.Hour))
	if more := w.Trials(); len(more) > 0 {
		t.Errorf("what was taken is tried again: %+v", more)
	}
}

// A variant may have no node for ever, and nodes change all the time: examples are not looked for with each of these
// events, and a node that comes is found after a while, without another one.
func TestExamplesAreLookedForNowAndThen(t *testing.T) {
	w := newWorld()
	w.Tries = true
	w.setNode("n", "l", 4)
	w.begin()
	w.make("p", "n", w.newest())
	w.setVariant("xl", "xl", 0, 5, 0)
	w.settle()
	if trials := w.Trials(); len(trials) > 0 {
		t.Fatalf("trials are %+v", trials)
	}
	w.setNode("n2", "xl", 4)
	w.make("p2", "n2", w.newest())
	if trials := w.Trials(); len(trials) > 0 {
		t.Errorf("examples are looked for at once: %+v", trials)
	}
	at, ok := w.NextTick()
	if !ok || at.After(start.Add(2*time.Second)) {
		t.Fatalf("the next turn is at %s, %v", at, ok)
	}
	w.Tick(at)
	if trials := w.Trials(); len(trials) != 1 || trials[0].Node != "n2" {
		t.Errorf("trials are %+v, want one on n2", trials)
	}
	if short, long := looksFor(10), looksFor(50_000); short > 2*time.Second || long < 50*time.Second {
		t.Errorf("examples among 10 pods are looked for each %s, among 50,000 each %s", short, long)
	}
}

// templates has the same template under each name.
type templates struct{ *world }

func (o templates) Template(types.UID, string) *corev1.PodTemplateSpec { return &o.ds.Spec.Template }

// Another template that the API refuses under the variants of before holds a DaemonSet, but not one that follows a
// policy, also before its rollout has begun here: there it fails at its canary, and a daemon that dies elsewhere is made
// again.
func TestAPolicyTriesAnotherTemplateByItself(t *testing.T) {
	for _, follows := range []bool{false, true} {
		w := newWorld()
		w.Objects, w.Tries = templates{w}, true
		if follows {
			w.Step(fact.Rollout{UID: "ds"})
		}
		w.setNode("n", "l", 4)
		w.setVariant("l", "l", 0, 5, 0)
		w.begin()
		w.make("p", "n", w.newest())
		w.Step(fact.DaemonSet{UID: "ds", Namespace: "ns", Name: "ds", Generation: 2, Revision: "u",
			Placement: placement.Compile(&w.ds.Spec.Template.Spec)})
		w.settle()
		trials := w.Trials()
		if len(trials) != 1 {
			t.Fatalf("it follows a policy: %v; trials are %+v", follows, trials)
		}
		w.TellVerdict(Verdict{Trial: trials[0], Refused: "no"})
		w.settle()
		if held := w.sets["ds"].told.Held; held == follows {
			t.Errorf("it follows a policy: %v; it is held: %v", follows, held)
		}
	}
}

// A controller that begins in the middle of a change without a policy takes no pod back that the one before it made by
// the newest variants, though it has not tried these itself yet, nor knows that they are stored.
func TestAStartInTheMiddleOfAChangeTakesNoPodBack(t *testing.T) {
	for _, stored := range []bool{true, false} {
		w := newWorld()
		w.setVariant("l", "l", 0, 5, 0)
		for _, node := range []string{"n1", "n2", "n3"} {
			w.setNode(node, "l", 4)
		}
		w.begin()
		before := w.newest()
		w.make("p2", "n2", before)
		w.make("p3", "n3", before)
		w.setVariant("l", "l", 0, 6, 0)
		w.settle()
		w.make("p1", "n1", w.newest())

		again := newWorld()
		again.Tries, again.pods, again.ds = true, w.pods, w.ds
		for _, n := range w.at {
			again.TellNode(n, false)
			again.rows.Step(fact.OfNode(n))
		}
		again.TellVariant(w.all["l"], false)
		for id, k := range w.sets["ds"].known {
			if stored || id != variantsOf(w.newest()) {
				again.TellStored(k.stored, false)
			}
		}
		for uid, p := range w.pods {
			again.Step(fact.Pod{UID: uid, Name: p.Name, Owner: "ds", Node: w.on[uid], Bound: true,
				Revision: content.RevisionOf("t", p.Labels), Created: start})
		}
		again.TellDaemonSet(w.ds, false)
		again.tellSet(2)
		again.Settle()
		told := again.sets["ds"].told
		if !told.Held && told.Revision != w.newest() || told.Held && stored {
			t.Errorf("its newest variants are stored: %v; it is told %s, held %v; pods have %s and %s", stored, told.Revision,
				told.Held, before, w.newest())
		}
	}
}
