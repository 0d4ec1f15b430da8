package belongings

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/variant/resizing"
)

var app = map[string]string{"app": "x"}

// set is a DaemonSet that selects app.
func set(name, image string) *appsv1.DaemonSet {
	limit := int32(0)
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Generation: 1, ResourceVersion: "10"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}, RevisionHistoryLimit: &limit, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: app}, Spec: corev1.PodSpec{Hostname: image, NodeSelector: map[string]string{"for": image}}}}}
}

// revisionOf is the revision of a DaemonSet's template, as it has it.
func revisionOf(t *testing.T, d *appsv1.DaemonSet, number int64) *appsv1.ControllerRevision {
	t.Helper()
	plan, err := history.Compute(history.Input{Owner: history.OfDaemonSet(d)})
	if err != nil {
		t.Fatal(err)
	}
	r := plan.Create
	r.UID, r.ResourceVersion, r.Revision = types.UID(r.Name), "20", number
	return r
}

func orphan(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: app, ResourceVersion: "30"}}
}

// knows has a book with a DaemonSet, the revision of its template, number 3, and older ones.
func knows(t *testing.T, d *appsv1.DaemonSet, older ...*appsv1.ControllerRevision) *world {
	t.Helper()
	w := newWorld()
	for _, r := range append(older, revisionOf(t, d, 3)) {
		w.book.Step(Revision{Object: r, Added: true})
	}
	w.book.Step(DaemonSet{Object: d})
	return w
}

// A pod that waits for room for other amounts is known to wait, whoever made it.
func TestAResizeIsTold(t *testing.T) {
	for _, guest := range []bool{false, true} {
		d := set("agent", "v1")
		w := knows(t, d)
		w.book.Guest = guest
		record := resizing.Record{Pod: "one", Generation: 2, At: time.Unix(1e9, 0)}
		text, err := record.Text()
		if err != nil {
			t.Fatal(err)
		}
		p := orphan("one")
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
		p.Annotations, p.Generation = map[string]string{resizing.Annotation: text}, 2
		p.Status = corev1.PodStatus{ObservedGeneration: 2, Conditions: []corev1.PodCondition{{Type: corev1.PodResizePending,
			Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "no room"}}}
		w.book.Step(Pod{Object: p})
		if told := w.rows.pods["one"]; told.Unplaceable != "no room" || !told.Pointed.Equal(record.At) {
			t.Errorf("guest %v: it is told %+v", guest, told)
		}
	}
}

// Of several DaemonSets that would take an orphan the first by name does, whichever came
// first, and the next one when that is gone.
func TestAnOrphanGoesToTheFirstByName(t *testing.T) {
	for _, order := range [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a"}} {
		w := newWorld()
		for _, name := range order {
			w.book.Step(DaemonSet{Object: set(name, "one")})
		}
		w.book.Step(Pod{Object: orphan("orphan")})
		for _, name := range []string{"a", "b", "c"} {
			if p := w.rows.pods["orphan"]; string(p.Owner) != name || !p.Adopting {
				t.Errorf("sets come as %v: the orphan is taken by %q, want %q", order, p.Owner, name)
			}
			w.book.Step(DaemonSet{Object: set(name, "one"), Gone: true})
		}
		if p, known := w.rows.pods["orphan"]; known {
			t.Errorf("with all sets gone the orphan is still taken by %q", p.Owner)
		}
	}
}

// A thousand orphans are adopted some at a time, each once.
func TestOrphansAreAdoptedInBatches(t *testing.T) {
	w := knows(t, set("a", "one"))
	w.book.Jobs()
	for i := range 600 {
		w.book.Step(Pod{Object: orphan(fmt.Sprintf("p%04d", i))})
	}
	tried := map[string]int{}
	for batch := range 10 {
		jobs := w.book.Jobs()
		if len(jobs) == 0 {
			break
		}
		j := jobs[0].(*ClaimJob)
		if len(jobs) != 1 || len(j.Adopt) > 250 {
			t.Fatalf("batch %d: %d jobs, the first of %d pods", batch, len(jobs), len(j.Adopt))
		}
		result := ClaimResult{Job: j}
		for _, p := range j.Adopt {
			tried[p.Name]++
			changed := p.DeepCopy()
			changed.ResourceVersion = "31"
			w.book.Step(Pod{Object: changed}) // somebody else writes it meanwhile
			result.Pods = append(result.Pods, ClaimedPod{Pod: p, Adopted: true})
		}
		w.book.Step(result) // the DaemonSet may not take them after all
	}
	if len(tried) != 600 {
		t.Errorf("%d of 600 were tried", len(tried))
	}
	for name, n := range tried {
		if n != 1 {
			t.Fatalf("%s was tried %d times", name, n)
		}
	}
}

// Old revisions go when no pod has them, and no rollout may need them.
func TestWhatARolloutNeedsIsNotCleanedUp(t *testing.T) {
	was, needed := revisionOf(t, set("a", "was"), 1), revisionOf(t, set("a", "stable"), 2)
	w := newWorld()
	w.rows.keeps = map[string]bool{history.HashOf(needed): true}
	for _, r := range []*appsv1.ControllerRevision{was, needed, revisionOf(t, set("a", "new"), 3)} {
		w.book.Step(Revision{Object: r, Added: true})
	}
	w.book.Step(DaemonSet{Object: set("a", "new")})
	var removed []string
	for _, j := range w.book.Jobs() {
		if c, ok := j.(*CleanupJob); ok {
			for _, r := range c.Revisions {
				removed = append(removed, r.Name)
			}
		}
	}
	if len(removed) != 1 || removed[0] != was.Name {
		t.Errorf("removed are %v, want %s alone", removed, was.Name)
	}
}

// The placement rules of a revision are forgotten with it.
func TestRulesGoWithTheirRevision(t *testing.T) {
	old := revisionOf(t, set("a", "old"), 1)
	w := knows(t, set("a", "new"), old)
	hash := history.HashOf(old)
	if w.rows.sets["a"].Earlier.ByRevision[hash] == nil {
		t.Fatal("the rules of the old revision are not known")
	}
	w.book.Step(Revision{Object: old, Gone: true})
	if w.rows.sets["a"].Earlier.ByRevision[hash] != nil {
		t.Error("the rules of a revision that is gone are still known")
	}
}

// Who decides is told of the images that no node can be asked for.
func TestImagesBeyondARequestAreTold(t *testing.T) {
	for images, want := range map[int]int{0: 0, fetch.MaxImages: 0, fetch.MaxImages + 3: 3} {
		d := set("a", "new")
		spec := &d.Spec.Template.Spec
		for i := range images {
			spec.Containers = append(spec.Containers, corev1.Container{Image: fmt.Sprint("agent:", i)})
		}
		if more := knows(t, d).rows.sets["a"].MoreImages; more != want {
			t.Errorf("of %d images %d are beyond a request, want %d", images, more, want)
		}
	}
}

// A version that comes late does not replace a newer one.
func TestAnOlderVersionOfARevisionIsNoNews(t *testing.T) {
	d := set("a", "one")
	w := knows(t, d)
	late, hash := revisionOf(t, d, 1), history.HashOf(revisionOf(t, d, 3))
	late.ResourceVersion = "5"
	w.book.Step(Revision{Object: late})
	if r, _ := w.book.Revision("a", hash); r == nil || r.Revision != 3 {
		t.Errorf("the revision is %+v, want number 3", r)
	}
}

// A revision of another template that has appeared with the current one's number, such as
// one whose creation got no answer, must not pass for the newest.
func TestTheCurrentRevisionHasTheHighestNumber(t *testing.T) {
	for number, renumbers := range map[int64]bool{2: false, 3: true, 4: true} {
		w := knows(t, set("a", "new"))
		w.book.Jobs()
		w.book.Step(Revision{Object: revisionOf(t, set("a", "other"), number), Added: true})
		renumbered := false
		for _, j := range w.book.Jobs() {
			if r, ok := j.(*RevisionJob); ok && r.Plan.Renumber > number {
				renumbered = true
			}
		}
		if renumbered != renumbers {
			t.Errorf("one with number %d beside the current 3: renumbered is %v", number, renumbered)
		}
	}
}

// A revision that is deleted while its creation is still unanswered is made again: the answer comes after the news.
func TestARevisionThatIsDeletedBeforeItsAnswerIsMadeAgain(t *testing.T) {
	w, d := newWorld(), set("a", "one")
	w.book.Step(DaemonSet{Object: d})
	j, made := w.book.Jobs()[0].(*RevisionJob), revisionOf(t, d, 1)
	w.book.Step(Revision{Object: made, Added: true})
	w.book.Step(Revision{Object: made, Gone: true})
	w.book.Step(RevisionResult{Job: j, Written: []*appsv1.ControllerRevision{made}, Hash: history.HashOf(made)})
	jobs := w.book.Jobs()
	if len(jobs) != 1 || jobs[0].(*RevisionJob).Plan.Create == nil {
		t.Errorf("after it was deleted: %+v", jobs)
	}
}

// When two templates have the same hash the next try has another, also when the watch has
// not told of the raised count yet.
func TestTheNextTryKnowsTheCollision(t *testing.T) {
	w := newWorld()
	d := set("a", "one")
	w.book.Step(DaemonSet{Object: d})
	j := w.book.Jobs()[0].(*RevisionJob)
	raised, count := d.DeepCopy(), int32(1)
	raised.Status.CollisionCount, raised.ResourceVersion = &count, "11"
	w.book.Step(RevisionResult{Job: j, Failed: true, DaemonSet: raised})
	w.tick(time.Minute)
	again := w.book.Jobs()[0].(*RevisionJob)
	if again.Plan.Create == nil || again.Plan.Create.Name == j.Plan.Create.Name {
		t.Errorf("the next try makes %+v, after %s was taken", again.Plan.Create, j.Plan.Create.Name)
	}
}

// What is on its way out takes nothing and cleans up nothing.
func TestADeletingDaemonSetTakesNothing(t *testing.T) {
	now, d := metav1.NewTime(noon), set("a", "new")
	old := revisionOf(t, set("a", "old"), 1)
	p := orphan("theirs")
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(d, Kind)}
	p.Labels = map[string]string{"app": "x", appsv1.ControllerRevisionHashLabelKey: history.HashOf(old)}
	w := newWorld()
	w.book.Step(Pod{Object: p})
	w.book.Step(Revision{Object: old, Added: true})
	w.book.Step(Revision{Object: revisionOf(t, d, 3), Added: true})
	w.book.Step(DaemonSet{Object: d})
	if jobs := w.book.Jobs(); len(jobs) > 0 {
		t.Fatalf("jobs: %+v", jobs[0])
	}
	going := d.DeepCopy()
	going.DeletionTimestamp, going.ResourceVersion = &now, "11"
	w.book.Step(DaemonSet{Object: going})
	w.book.Step(Pod{Object: orphan("orphan")})
	w.book.Step(Pod{Object: p, Gone: true})
	if jobs := w.book.Jobs(); len(jobs) > 0 {
		t.Errorf("jobs: %+v", jobs[0])
	}
	if _, taken := w.rows.pods["orphan"]; taken {
		t.Error("it took an orphan")
	}
}

// Where the API server does not keep the annotation for the controller, who may write pods must not hide restarts by it.
func TestAnnotationThatAnybodyMayWriteHidesNoRestarts(t *testing.T) {
	for live, want := range map[bool]int32{true: 2, false: 9} {
		w := knows(t, set("a", "one"))
		w.book.Live = live
		id := strings.Repeat("b", 24)
		to := content.Pointing{Content: id, At: time.Unix(1, 0), Restarts: 7}
		text, err := to.Text()
		if err != nil {
			t.Fatal(err)
		}
		p := orphan("pod")
		p.Labels = map[string]string{"app": "x", appsv1.ControllerRevisionHashLabelKey: "hash",
			content.RevisionLabel: content.Revision("hash", id)}
		p.Annotations = map[string]string{content.LiveName: text}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 9}}
		w.book.Step(Pod{Object: p})
		if got := w.rows.pods["pod"]; got.Restarts != want || got.Pointed.IsZero() == live {
			t.Errorf("live content %t: %d restarts, pointed at %s; want %d", live, got.Restarts, got.Pointed, want)
		}
	}
}
