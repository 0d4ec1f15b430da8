package variants

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// refuse has nothing be stored, and everything be told.
func (w *world) refuse() {
	w.Settle()
	for _, j := range w.Jobs() {
		w.TellResult(Result{Job: j, Why: "exceeded quota"})
	}
	w.Settle()
}

// tellSet tells of the DaemonSet once more.
func (w *world) tellSet(generation int64) {
	rules := placement.Compile(&w.ds.Spec.Template.Spec)
	w.Step(fact.DaemonSet{UID: "ds", Namespace: "ns", Name: "ds", Generation: generation, Revision: "t", Placement: rules,
		Earlier: &placement.Revisions{ByRevision: map[string]*placement.Rules{"t": rules}}})
}

// touchesPods reports whether pods are to be made or deleted now.
func (w *world) touchesPods() bool {
	return slices.ContainsFunc(w.rows.Ready(), func(a action.Action) bool {
		_, creates := a.(*action.CreatePod)
		_, deletes := a.(*action.DeletePod)
		return creates || deletes
	})
}

// Variants cannot be stored yet: no pod of a new DaemonSet is made as without them, however often it is looked at.
func TestANewDaemonSetWaitsForItsVariantsToBeStored(t *testing.T) {
	w := newWorld()
	w.setNode("n", "xl", 4)
	w.setVariant("large", "xl", 1, 30, 0)
	w.TellDaemonSet(w.ds, false)
	for i := range 3 {
		w.tellSet(int64(i + 1))
		w.refuse()
		if told := w.sets["ds"].told; !told.Held || w.touchesPods() {
			t.Fatalf("it is told %s, held %t", told.Revision, told.Held)
		}
		w.Tick(w.now.Add(time.Minute))
	}
	w.settle()
	if !strings.HasPrefix(w.newest(), "t_") || w.sets["ds"].told.Held || !w.touchesPods() {
		t.Errorf("the newest revision is %s", w.newest())
	}
}

// A variant was edited while no controller ran, and cannot be stored. The DaemonSet keeps what most of its pods have
// meanwhile, and is looked after.
func TestAStartWhileVariantsCannotBeStored(t *testing.T) {
	w := newWorld()
	for i := range 3 {
		w.setNode(fmt.Sprint("n", i), "xl", 4)
	}
	w.setVariant("large", "xl", 1, 30, 0)
	w.begin()
	had := w.newest()
	w.make("p0", "n0", had)
	w.make("p1", "n1", had)
	w.setVariant("large", "xl", 1, 40, 0)

	next := newWorld()
	next.at, next.all, next.pods, next.on = w.at, w.all, w.pods, w.on
	for _, n := range w.at {
		next.setNode(n.Name, "xl", 4)
	}
	for _, v := range w.all {
		next.TellVariant(v, false)
	}
	for _, r := range w.stored {
		next.TellStored(r, false)
	}
	next.TellDaemonSet(next.ds, false)
	for uid, node := range w.on {
		next.Step(fact.Pod{UID: uid, Name: string(uid), Owner: "ds", Node: node, Bound: true, Revision: "t", Ready: true})
	}
	next.tellSet(1)
	for range 3 {
		next.refuse()
		if told := next.sets["ds"].told; told.Held || told.Revision != had {
			t.Fatalf("it is told %s, held %t; it had %s", told.Revision, told.Held, had)
		}
		for _, a := range next.rows.Ready() {
			switch a := a.(type) {
			case *action.DeletePod:
				t.Errorf("%s", a)
			case *action.CreatePod:
				if a.Node != "n2" || a.Revision != had {
					t.Errorf("%s", a)
				}
			}
		}
	}
	next.Tick(next.now.Add(time.Hour))
	next.settle()
	if got := next.newest(); got == had || content.VariantsOf(got) == "" {
		t.Errorf("once they are stored the newest revision is %s", got)
	}
}

// More variants choose a DaemonSet than may when a controller starts, and then fewer, which are not stored.
func TestFromTooManyVariantsToEnough(t *testing.T) {
	w := newWorld()
	w.setNode("n", "xl", 4)
	for i := range 21 {
		w.setVariant(fmt.Sprint("v", i), "xl", int32(i), 30+i, 0)
	}
	w.begin()
	w.TellVariant(w.all["v20"], true)
	w.Settle()
	if told := w.sets["ds"].told; !told.Held {
		t.Errorf("it is told %s, held %t", told.Revision, told.Held)
	}
}

// Under the name by which variants are to be stored there is something else: that is said, and not tried without end.
func TestWhatIsStoredInPlaceOfVariants(t *testing.T) {
	w := newWorld()
	w.setNode("n", "xl", 4)
	w.setVariant("large", "xl", 1, 30, 0)
	w.TellDaemonSet(w.ds, false)
	w.Settle()
	tries := 0
	for range 100 {
		for _, j := range w.Jobs() {
			tries++
			other := *j.Make[0]
			other.Labels = nil
			w.TellResult(Result{Job: j, Made: append(j.Make[:0:0], &other)})
		}
		w.Settle()
	}
	if tries != 1 {
		t.Errorf("it was tried %d times at once", tries)
	}
	w.describe(w.all["large"])
	if is := w.all["large"].Status.Conditions; !strings.Contains(is[0].Message, "holds something else") {
		t.Errorf("the conditions are %+v", is)
	}
}

// Who merges a patch into a revision, as the garbage collector does when a DaemonSet goes without its pods, has it be
// written again with its keys in order. What it holds never changes, or nobody could.
func TestWhatIsStoredStaysTheSameWhenItIsMerged(t *testing.T) {
	w := newWorld()
	w.setNode("n", "xl", 4)
	w.setVariant("large", "xl", 1, 30, 0.5)
	w.begin()
	k := w.sets["ds"].newest
	before := w.sets["ds"].revisionOf(k)
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(text, []byte(`{"metadata":{"ownerReferences":null}}`),
		appsv1.ControllerRevision{})
	if err != nil {
		t.Fatal(err)
	}
	after := appsv1.ControllerRevision{}
	if err := json.Unmarshal(merged, &after); err != nil {
		t.Fatal(err)
	}
	if len(after.OwnerReferences) > 0 || string(after.Data.Raw) != string(before.Data.Raw) {
		t.Errorf("with owners %v it holds\n%s, and held\n%s", after.OwnerReferences, after.Data.Raw, before.Data.Raw)
	}
	if !w.learn(w.sets["ds"], &after) {
		t.Errorf("it is not known again: %s", after.Data.Raw)
	}
}

// What could not be stored is not needed any more: nothing is wrong then.
func TestWhatNeedNotBeStoredIsNothingWrong(t *testing.T) {
	w := newWorld()
	w.setNode("n", "xl", 4)
	w.setVariant("large", "xl", 1, 30, 0)
	w.begin()
	applies := func() string {
		w.Tick(w.now.Add(time.Minute))
		all, _ := w.Statuses()
		if len(all) != 1 {
			t.Fatalf("%d statuses are to be written, want 1", len(all))
		}
		w.TellStatus(all[0], all[0])
		return meta.FindStatusCondition(all[0].Status.Conditions, v1alpha1.VariantApplies).Message
	}
	applies()
	w.setVariant("large", "xl", 1, 60, 0)
	w.refuse()
	if why := applies(); !strings.Contains(why, "exceeded quota") {
		t.Errorf("of what cannot be stored it says %q", why)
	}
	w.setVariant("large", "xl", 1, 30, 0)
	w.Settle()
	if jobs := w.Jobs(); len(jobs) > 0 {
		t.Errorf("something is to be stored: %v", jobs[0].Make)
	}
	if why := applies(); why != "" {
		t.Errorf("of what need not be stored it says %q", why)
	}
}
