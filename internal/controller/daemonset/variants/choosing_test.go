package variants

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// says returns what the variant's condition Applies says now.
func (w *world) says(name string) string {
	w.Tick(w.now.Add(2 * statusAgain))
	w.moved = true
	all, _ := w.Statuses()
	for _, v := range all {
		if v.Name == name {
			c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.VariantApplies)
			return string(c.Status) + " " + c.Message
		}
	}
	return ""
}

// A server that knows no more than a schema takes a formula that cannot be read. The DaemonSet keeps what it has, also
// where other variants change, and the condition says what is wrong; mended, it goes on.
func TestWhatASchemaCannotRefuse(t *testing.T) {
	w := newWorld()
	w.setNode("n", "xl", 4)
	w.setVariant("large", "xl", 1, 30, 0)
	w.begin()
	had := w.newest()
	bad := w.all["large"].DeepCopy()
	bad.Generation++
	bad.Spec.Resources = map[string]v1alpha1.VariantResources{"c": {Requests: map[corev1.ResourceName]string{"cpu": "node."}}}
	w.all["large"] = bad
	w.TellVariant(bad, false)
	w.settle()
	w.setVariant("small", "s", 2, 30, 0)
	w.settle()
	if got := w.newest(); got != had {
		t.Errorf("by a formula that cannot be read its revision is %s, it had %s", got, had)
	}
	if got := w.says("large"); !strings.HasPrefix(got, "False spec.resources[c].requests[cpu]") {
		t.Errorf("the condition is %s", got)
	}
	w.setVariant("large", "xl", 1, 40, 0)
	w.settle()
	if got := w.newest(); got == had || content.VariantsOf(got) == "" {
		t.Errorf("once it is mended its revision is %s", got)
	}
}

// While variants cannot be read, a DaemonSet that has stored ones keeps them, one that has none is not held, and what
// is read at last holds.
func TestWhileVariantsCannotBeRead(t *testing.T) {
	w := newWorld()
	w.setNode("n", "xl", 4)
	w.setVariant("large", "xl", 1, 30, 0)
	w.begin()
	had := w.newest()
	w.make("p0", "n", had)

	next := newWorld()
	next.TellUnread("DaemonSetVariants are not served")
	next.at, next.pods, next.on = w.at, w.pods, w.on
	next.setNode("n", "xl", 4)
	for _, r := range w.stored {
		next.TellStored(r, false)
	}
	next.TellDaemonSet(next.ds, false)
	next.Step(fact.Pod{UID: "p0", Name: "p0", Owner: "ds", Node: "n", Bound: true, Revision: "t", Ready: true})
	next.tellSet(1)
	next.settle()
	if told := next.sets["ds"].told; told.Held || told.Revision != had || next.touchesPods() {
		t.Errorf("it is told %s, held %t; it had %s", told.Revision, told.Held, had)
	}
	next.TellUnread("")
	next.settle()
	if got := next.newest(); got != "t" {
		t.Errorf("once it is known that there are none its revision is %s", got)
	}

	plain := newWorld()
	plain.TellUnread("DaemonSetVariants are not served")
	plain.setNode("n", "xl", 4)
	plain.begin()
	if told := plain.sets["ds"].told; told.Held || told.Revision != "t" || !plain.touchesPods() {
		t.Errorf("without stored variants it is told %s, held %t", told.Revision, told.Held)
	}
}

// Beside another controller variants are used where a policy is followed: nobody else can say what a pod is to be like.
func TestVariantsBesideAnotherController(t *testing.T) {
	w := newWorld()
	w.Guest = true
	w.setNode("n", "xl", 4)
	w.setVariant("large", "xl", 1, 30, 0)
	w.begin()
	const alone = "False DaemonSet ds: it follows no RolloutPolicy, so the API's own DaemonSet controller makes its pods by " +
		"the template alone"
	expect := func(when, says string, used bool) {
		t.Helper()
		w.settle()
		if got := w.newest(); used != (content.VariantsOf(got) != "") {
			t.Errorf("%s its revision is %s", when, got)
		}
		clear(w.writing)
		if got := w.says("large"); got != says {
			t.Errorf("%s the condition is %s", when, got)
		}
	}
	expect("without a policy", alone, false)
	w.make("p", "n", "t")
	w.Step(fact.Rollout{UID: "ds"})
	expect("with one", "True ", true)
	w.make("p", "n", w.newest())
	w.Step(fact.RolloutGone("ds"))
	expect("when it is gone", alone, false)
	w.Step(fact.Rollout{UID: "ds"})
	expect("when there is one again", "True ", true)
	if info, _ := w.rows.Pod("p"); info.Revision != w.newest() {
		t.Errorf("its pod, which is as it is to be, has %s", info.Revision)
	}
}

// A policy is followed again, and what the variants are cannot be used now: pods that have some keep them.
func TestAPolicyComesWhileVariantsCannotBeUsed(t *testing.T) {
	w := newWorld()
	w.Guest = true
	w.setNode("n", "xl", 4)
	w.setVariant("large", "xl", 1, 30, 0)
	w.begin()
	w.Step(fact.Rollout{UID: "ds"})
	w.settle()
	had := w.newest()
	w.make("p", "n", had)
	w.Step(fact.RolloutGone("ds"))
	w.settle()
	w.TellUnread("DaemonSetVariants are not served")
	w.Step(fact.Rollout{UID: "ds"})
	w.settle()
	if told := w.sets["ds"].told; told.Held || told.Revision != had || content.VariantsOf(had) == "" {
		t.Errorf("it is told %s, held %t; its pods have %s", told.Revision, told.Held, had)
	}
	w.TellUnread("")
	w.settle()
	if got := w.newest(); got != had {
		t.Errorf("once they can be its revision is %s", got)
	}

	plain := newWorld()
	plain.Guest = true
	plain.setNode("n", "xl", 4)
	plain.begin()
	plain.make("p", "n", "t")
	plain.setVariant("large", "xl", 1, 30, 0)
	plain.wrong["large"] = errors.New("its formula cannot be read")
	plain.Step(fact.Rollout{UID: "ds"})
	plain.settle()
	if told := plain.sets["ds"].told; told.Held || told.Revision != "t" {
		t.Errorf("it is told %s, held %t; its pods have none", told.Revision, told.Held)
	}
}

// Beside another controller a pod of a new template that admission has given its variants has the target, be they
// others by now, and one that nobody was asked about has not, whatever its author wrote: its node may not be due. Once
// the change is complete it is what it is.
func TestPodsThatNobodyWasAskedAbout(t *testing.T) {
	w := newWorld()
	w.Guest = true
	w.setNode("n", "s", 4)
	w.setVariant("large", "xl", 1, 30, 0)
	status := v1alpha1.DaemonSetRolloutStatus{StableRevision: "old_xx", TargetRevision: "t_yy"}
	w.Step(fact.Rollout{UID: "ds", Status: &status})
	w.begin()
	target := w.newest()
	for name, label := range map[types.UID]string{"given": "t_zz", "alone": "", "forged": "x_yy"} {
		w.pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(name), UID: name,
			Labels: map[string]string{content.RevisionLabel: label}}}
		w.Step(fact.Pod{UID: name, Name: string(name), Owner: "ds", Node: "n", Bound: true, Revision: "t"})
	}
	expect := func(when string, want map[types.UID]string) {
		t.Helper()
		w.settle()
		for name, revision := range want {
			if info, _ := w.rows.Pod(name); info.Revision != revision {
				t.Errorf("%s pod %s has %s, want %s", when, name, info.Revision, revision)
			}
		}
	}
	expect("under way", map[types.UID]string{"given": target, "alone": "t", "forged": "t"})
	status.StableRevision, status.TargetRevision = target, target
	w.Step(fact.Rollout{UID: "ds", Status: &status})
	expect("complete", map[types.UID]string{"given": target, "alone": target, "forged": target})
}

// A message stays within what the API takes, however much is to be said.
func TestALongReasonIsCut(t *testing.T) {
	w := newWorld()
	w.setVariant("large", "xl", 1, 30, 0)
	w.wrong["large"] = errors.New(strings.Repeat("ä", 40_000))
	w.begin()
	if got := strings.TrimPrefix(w.says("large"), "False "); len(got) > maxMessage+len("…") || !strings.HasSuffix(got, "ä…") {
		t.Errorf("a message of %d bytes: %.20s", len(got), got)
	}
}

// A DaemonSet keeps the variants that it has while one that chooses it holds what nobody here knows, and nothing is
// written into that one.
func TestAVariantOfANewerProgram(t *testing.T) {
	w := newWorld()
	w.setNode("n", "xl", 4)
	w.setVariant("large", "xl", 1, 30, 0)
	w.begin()
	had := w.newest()
	next := w.all["large"].DeepCopy()
	next.Annotations = map[string]string{newer.Annotation: "spec.zones"}
	next.Spec.Priority = 7
	w.TellVariant(next, false)
	w.settle()
	if got := w.newest(); got != had || !strings.Contains(w.sets["ds"].refused, "spec.zones") {
		t.Errorf("it has %s, and %q is said; want %s", got, w.sets["ds"].refused, had)
	}
	w.Tick(w.now.Add(2 * statusAgain))
	if all, moved := w.Statuses(); len(all) > 0 || !moved {
		t.Errorf("statuses are written: %v, %t", all, moved)
	}
	known := next.DeepCopy()
	known.Annotations = nil
	w.TellVariant(known, false)
	w.settle()
	if w.newest() == had || w.sets["ds"].refused != "" {
		t.Errorf("it still has %s: %s", had, w.sets["ds"].refused)
	}
}
