package daemonset

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/objects/podtemplate"
)

func revisionNumbers(a *fakeAPI) map[string]int64 {
	out := map[string]int64{}
	for _, r := range list[*appsv1.ControllerRevision](a, kindRevision) {
		out[r.Name] = r.Revision
	}
	return out
}

// Old revisions beyond the limit go, once no pod carries them.
func TestOldRevisionsAreCleanedUp(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	runController(t, a)
	ds := testDaemonSet("logs")
	limit := int32(2)
	ds.Spec.RevisionHistoryLimit = &limit
	a.add(ds)
	settled(t, a, "logs", 1)
	for i := 2; i <= 6; i++ {
		setImage(t, a, "logs", fmt.Sprintf("demo:v%d", i))
		settled(t, a, "logs", 1)
	}
	eventually(t, func() string {
		numbers := map[int64]bool{}
		for _, n := range revisionNumbers(a) {
			numbers[n] = true
		}
		if len(numbers) == 3 && numbers[4] && numbers[5] && numbers[6] {
			return ""
		}
		return fmt.Sprintf("revisions are %v, want 4, 5 and 6", numbers)
	})
}

// A template that changed, or came back, while no controller ran gets the next
// number: a controller that starts knows the revisions before it numbers one.
func TestRevisionsAreNumberedOnAfterARestart(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	stop := startController(t, a)
	a.add(testDaemonSet("logs"))
	first := settled(t, a, "logs", 1).Spec.Template.Spec.Containers[0].Image
	for i, image := range []string{"demo:v2", "demo:v3", first} {
		stop()
		setImage(t, a, "logs", image)
		stop = startController(t, a)
		settled(t, a, "logs", 1)
		var newest int64
		for _, n := range revisionNumbers(a) {
			newest = max(newest, n)
		}
		if numbers := revisionNumbers(a); newest != int64(i+2) || len(numbers) != min(i+2, 3) {
			t.Errorf("after %s the revisions are %v, want %d as the newest of %d", image, numbers, i+2, min(i+2, 3))
		}
	}
	stop()
}

// A revision of an earlier template whose creation got no answer shows up with
// the current one's number: the current one gets the next.
func TestNoTwoRevisionsKeepOneNumber(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	runController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 1)
	current := list[*appsv1.ControllerRevision](a, kindRevision)[0]

	late := current.DeepCopy()
	late.Name, late.UID, late.ResourceVersion = "logs-late", "", ""
	late.Labels[appsv1.ControllerRevisionHashLabelKey] = "late"
	late.Data.Raw = []byte(`{"spec":{"template":{}}}`)
	a.add(late)
	eventually(t, func() string {
		if got := revisionNumbers(a); got["logs-late"] != 1 || got[current.Name] != 2 {
			return fmt.Sprintf("revisions are %v, want logs-late to be 1 and %s 2", got, current.Name)
		}
		return ""
	})
}

// Two revisions with the present template become one; pods of the other get its
// hash and stay.
func TestDuplicateRevisionsAreMerged(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	runController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 1)
	pods := podUIDs(a)
	first := list[*appsv1.ControllerRevision](a, kindRevision)[0]

	twin := first.DeepCopy()
	twin.Name, twin.UID, twin.ResourceVersion, twin.Revision = "logs-twin", "", "", 7
	twin.Labels[appsv1.ControllerRevisionHashLabelKey] = "twin"
	a.add(twin)
	// Nothing happens when it appears; a change of a revision has it noticed.
	edit(t, a, "default", first.Name, func(r *appsv1.ControllerRevision) { r.Annotations = map[string]string{"touched": "yes"} })
	eventually(t, func() string {
		if got := revisionNumbers(a); len(got) != 1 || got["logs-twin"] != 7 {
			return fmt.Sprintf("revisions are %v", got)
		}
		p := list[*corev1.Pod](a, kindPod)[0]
		if h := p.Labels[appsv1.ControllerRevisionHashLabelKey]; h != "twin" {
			return "the pod carries hash " + h
		}
		return ""
	})
	settled(t, a, "logs", 1)
	if got := podUIDs(a); fmt.Sprint(got) != fmt.Sprint(pods) {
		t.Errorf("pods were %v, are %v", pods, got)
	}
}

// Another template's revision has the name that ours would get: the collision
// count goes up and the hash changes.
func TestHashCollision(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	ds := testDaemonSet("logs")
	squatter := &appsv1.ControllerRevision{Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{}}}`)}}
	squatter.Namespace, squatter.Name = "default", history.Name("logs", podtemplate.Hash(&ds.Spec.Template, nil))
	a.add(squatter)
	runController(t, a)
	a.add(ds)
	got := settled(t, a, "logs", 1)
	if got.Status.CollisionCount == nil || *got.Status.CollisionCount != 1 {
		t.Errorf("collision count is %v, want 1", got.Status.CollisionCount)
	}
	want := podtemplate.Hash(&ds.Spec.Template, got.Status.CollisionCount)
	if h := list[*corev1.Pod](a, kindPod)[0].Labels[appsv1.ControllerRevisionHashLabelKey]; h != want {
		t.Errorf("the pod carries hash %s, want %s", h, want)
	}
}

// kubectl replace --force: a DaemonSet of the same name and template comes before
// the garbage collector has removed the revision of the one that went. Pods do not
// wait for that, and in the end there is a revision of its own.
func TestARevisionOfTheDaemonSetBefore(t *testing.T) {
	a := newFakeAPI(t)
	a.add(testNode("n1"))
	runController(t, a)
	a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 1)
	old := list[*appsv1.ControllerRevision](a, kindRevision)[0]
	pod := list[*corev1.Pod](a, kindPod)[0]
	a.erase(kindDaemonSet, "default", "logs")
	heir := a.add(testDaemonSet("logs"))
	settled(t, a, "logs", 1)

	a.erase(kindPod, "default", pod.Name)
	a.erase(kindRevision, "default", old.Name)
	eventually(t, func() string {
		revisions := list[*appsv1.ControllerRevision](a, kindRevision)
		if len(revisions) != 1 || ownerOf(revisions[0]) != heir.GetUID() || revisions[0].Name != old.Name {
			return fmt.Sprintf("revisions are %v, want %s of the new DaemonSet", revisions, old.Name)
		}
		return ""
	})
	settled(t, a, "logs", 1)
}

// Its revision was left without an owner, and the cache does not know yet.
func TestARevisionWithoutAnOwnerIsAdoptedByItsName(t *testing.T) {
	a := newFakeAPI(t)
	job := &belongings.RevisionJob{DaemonSet: a.add(testDaemonSet("logs")).(*appsv1.DaemonSet)}
	plan, err := history.Compute(history.Input{Owner: history.OfDaemonSet(job.DaemonSet)})
	if err != nil {
		t.Fatal(err)
	}
	orphan := plan.Create.DeepCopy()
	orphan.OwnerReferences = nil
	a.add(orphan)
	job.Plan.Create = plan.Create
	e, _ := newExecutor(t, a)
	if got := e.ApplyRevisions(t.Context(), job); got.Failed {
		t.Fatal("the revision is not taken")
	}
	if got := list[*appsv1.ControllerRevision](a, kindRevision)[0]; ownerOf(got) != job.DaemonSet.UID {
		t.Errorf("the revision's owners are %v", got.OwnerReferences)
	}
}

// Old revisions that may not be deleted hold up nothing else.
func TestCleaningUpHoldsUpNothing(t *testing.T) {
	a := newFakeAPI(t)
	a.keepRevisions = true
	a.add(testNode("n0"))
	runController(t, a)
	ds := testDaemonSet("logs")
	none := int32(0)
	ds.Spec.RevisionHistoryLimit = &none
	a.add(ds)
	settled(t, a, "logs", 1)
	setImage(t, a, "logs", "demo:v2")
	settled(t, a, "logs", 1)
	tries := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.revisionsKept
	}
	eventually(t, func() string {
		if n := tries(); n < 6 {
			return fmt.Sprintf("there were %d tries to delete the old revision", n)
		}
		return ""
	})
	// The next try is most of a second off; nodes do not wait for it.
	var waited []bool
	for i := range int32(4) {
		before := tries()
		a.add(testNode(fmt.Sprint("n", i+1)))
		settled(t, a, "logs", i+2)
		waited = append(waited, tries() > before)
	}
	if !slices.Contains(waited, false) {
		t.Error("each new node got its pod only after the next try to delete the old revision")
	}
	a.mu.Lock()
	a.keepRevisions = false
	a.mu.Unlock()
	eventually(t, func() string {
		if n := len(list[*appsv1.ControllerRevision](a, kindRevision)); n != 1 {
			return fmt.Sprintf("there are %d revisions", n)
		}
		return ""
	})
}

// Another DaemonSet with the same selector has taken the revision: it will never be
// ours, so ours gets another name.
func TestARevisionThatAnotherDaemonSetTook(t *testing.T) {
	a := newFakeAPI(t)
	other := a.add(testDaemonSet("other")).(*appsv1.DaemonSet)
	job := &belongings.RevisionJob{DaemonSet: a.add(testDaemonSet("logs")).(*appsv1.DaemonSet)}
	plan, err := history.Compute(history.Input{Owner: history.OfDaemonSet(job.DaemonSet)})
	if err != nil {
		t.Fatal(err)
	}
	taken := plan.Create.DeepCopy()
	taken.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(other, belongings.Kind)}
	a.add(taken)
	job.Plan.Create = plan.Create
	e, _ := newExecutor(t, a)
	result := e.ApplyRevisions(t.Context(), job)
	if !result.Failed {
		t.Error("the revision of another DaemonSet is taken for ours")
	}
	if got := result.DaemonSet; got == nil || *got.Status.CollisionCount != 1 {
		t.Errorf("the DaemonSet is now %v, want a collision count of 1", got)
	}
}
