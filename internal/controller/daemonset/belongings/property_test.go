package belongings

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// rows notes what a matrix is told.
type rows struct {
	sets map[types.UID]fact.DaemonSet
	pods map[types.UID]fact.Pod
	// keeps are revisions that a rollout may still need.
	keeps map[string]bool
}

func (r *rows) Step(e matrix.Event) {
	switch e := e.(type) {
	case fact.DaemonSet:
		r.sets[e.UID] = e
	case fact.DaemonSetGone:
		delete(r.sets, types.UID(e))
	case fact.Pod:
		r.pods[e.UID] = e
	case fact.PodGone:
		delete(r.pods, types.UID(e))
	}
}

func (r *rows) Pod(uid types.UID) (fact.Pod, bool) { p, ok := r.pods[uid]; return p, ok }
func (r *rows) Pods() []types.UID                  { return slices.Collect(maps.Keys(r.pods)) }

func (r *rows) Makes(types.UID) []string { return slices.Collect(maps.Keys(r.keeps)) }

func (r *rows) PodsOfRevision(uid types.UID, revision string) (n int) {
	for _, p := range r.pods {
		if p.Owner == uid && p.Revision == revision {
			n++
		}
	}
	return n
}

// world is an API with DaemonSets, pods and revisions, and the jobs under way.
type world struct {
	book      *Book
	rows      *rows
	now       time.Time
	version   int
	sets      map[string]*appsv1.DaemonSet // by name
	pods      map[types.UID]*corev1.Pod
	revisions map[string]*appsv1.ControllerRevision // by name
	jobs      []Job
	events    []Event          // on their way
	answers   []RevisionResult // of what is done, not told yet
	// neverCleansUp fails each job that cleans up.
	neverCleansUp bool
}

func newWorld() *world {
	w := &world{rows: &rows{sets: map[types.UID]fact.DaemonSet{}, pods: map[types.UID]fact.Pod{}}, now: noon,
		sets: map[string]*appsv1.DaemonSet{}, pods: map[types.UID]*corev1.Pod{}, revisions: map[string]*appsv1.ControllerRevision{}}
	w.book = New(w.rows, nil)
	w.book.Step(Now{w.now})
	return w
}

func (w *world) next() string { w.version++; return strconv.Itoa(w.version) }

func (w *world) putSet(d *appsv1.DaemonSet) {
	d.ResourceVersion = w.next()
	w.sets[d.Name] = d
	w.events = append(w.events, DaemonSet{Object: d})
}

func (w *world) putPod(p *corev1.Pod) *corev1.Pod {
	p.ResourceVersion = w.next()
	w.pods[p.UID] = p
	w.events = append(w.events, Pod{Object: p})
	return p
}

func (w *world) putRevision(r *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	_, known := w.revisions[r.Name]
	if r.UID == "" {
		r.UID = types.UID("revision-" + w.next())
	}
	r.ResourceVersion = w.next()
	w.revisions[r.Name] = r
	w.events = append(w.events, Revision{Object: r, Added: !known})
	return r
}

func (w *world) dropRevision(name string) {
	if r := w.revisions[name]; r != nil {
		delete(w.revisions, name)
		w.events = append(w.events, Revision{Object: r, Gone: true})
	}
}

// deliver hands over the first n events, and checks what then must hold.
func (w *world) deliver(t *rapid.T, n int) {
	for _, e := range w.events[:n] {
		w.book.Step(e)
	}
	w.events = slices.Clone(w.events[n:])
	w.jobs = append(w.jobs, w.book.Jobs()...)
	under := map[string]bool{}
	for _, j := range w.jobs {
		key := fmt.Sprintf("%T of %s", j, j.Set().UID)
		if under[key] {
			t.Fatalf("a second %s is under way", key)
		}
		under[key] = true
		row, known := w.rows.sets[j.Set().UID]
		if r, ok := j.(*RevisionJob); ok && known && len(r.Plan.Duplicates) > 0 && !row.Held && !row.Deleting {
			t.Fatalf("%s is not held while pods get another hash", row.Name)
		}
	}
}

// checkNotHeld: once the hash is known, pods wait for nothing else.
func (w *world) checkNotHeld(t *rapid.T, j *RevisionJob, result *RevisionResult) {
	s := w.book.sets[j.DaemonSet.UID]
	if result.Hash != "" && s != nil && !s.merging && s.latest.Generation == j.DaemonSet.Generation && w.rows.sets[j.DaemonSet.UID].Held {
		t.Fatalf("%s is held though its hash is known", j.DaemonSet.Name)
	}
}

func (w *world) edit(t *rapid.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "set")
	d := w.sets[name]
	if d == nil {
		limit, app := int32(1), map[string]string{"app": "x"}
		if name == "c" {
			app = map[string]string{"app": "y"}
		}
		d = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + w.next())},
			Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: app}, RevisionHistoryLimit: &limit,
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app}}}}
	}
	d = d.DeepCopy()
	d.Generation++
	d.Spec.Template.Spec.Hostname = rapid.SampledFrom([]string{"one", "two", "three", "four"}).Draw(t, "template")
	w.putSet(d)
}

func (w *world) drop(t *rapid.T) {
	if d := w.sets[rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "set")]; d != nil {
		delete(w.sets, d.Name)
		w.events = append(w.events, DaemonSet{Object: d, Gone: true})
		if rapid.Bool().Draw(t, "with what it has") {
			return // which goes later
		}
		for _, p := range w.pods { // the garbage collector leaves orphans
			if OwnerOf(p) == d.UID {
				p = p.DeepCopy()
				p.OwnerReferences = nil
				w.putPod(p)
			}
		}
		for _, r := range w.revisions {
			if OwnerOf(r) == d.UID {
				r = r.DeepCopy()
				r.OwnerReferences = nil
				w.putRevision(r)
			}
		}
	}
}

// collect removes what belongs to DaemonSets that are gone.
func (w *world) collect() {
	alive := map[types.UID]bool{"": true}
	for _, d := range w.sets {
		alive[d.UID] = true
	}
	for uid, p := range w.pods {
		if !alive[OwnerOf(p)] {
			delete(w.pods, uid)
			w.events = append(w.events, Pod{Object: p, Gone: true})
		}
	}
	for name, r := range w.revisions {
		if !alive[OwnerOf(r)] {
			w.dropRevision(name)
		}
	}
}

func (w *world) pod(t *rapid.T) {
	uid := types.UID(fmt.Sprint("pod-", rapid.IntRange(1, 6).Draw(t, "pod")))
	p := w.pods[uid]
	if p == nil {
		p = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(uid), UID: uid}}
	} else if rapid.IntRange(0, 3).Draw(t, "pod goes") == 0 {
		delete(w.pods, uid)
		w.events = append(w.events, Pod{Object: p, Gone: true})
		return
	}
	p = p.DeepCopy()
	p.Labels = map[string]string{"app": rapid.SampledFrom([]string{"x", "x", "y", "z"}).Draw(t, "app")}
	if have := slices.Sorted(maps.Keys(w.revisions)); len(have) > 0 {
		p.Labels[appsv1.ControllerRevisionHashLabelKey] = history.HashOf(w.revisions[rapid.SampledFrom(have).Draw(t, "hash")])
	}
	w.putPod(p)
}

// twin makes a second revision of a template, or takes one away.
func (w *world) twin(t *rapid.T) {
	names := slices.Sorted(maps.Keys(w.revisions))
	if len(names) == 0 {
		return
	}
	r := w.revisions[rapid.SampledFrom(names).Draw(t, "revision")]
	if rapid.Bool().Draw(t, "revision goes") {
		w.dropRevision(r.Name)
		return
	}
	twin := r.DeepCopy()
	twin.UID, twin.Name, twin.OwnerReferences = "", "twin-"+w.next(), nil
	twin.Labels[appsv1.ControllerRevisionHashLabelKey] = twin.Name
	twin.Revision = int64(rapid.IntRange(1, 5).Draw(t, "number"))
	w.putRevision(twin)
}

// finish does a job, wholly or not at all, and tells what came of it: of revisions at once, or later.
func (w *world) finish(t *rapid.T, i int, refuse bool) {
	j := w.jobs[i]
	w.jobs = slices.Delete(w.jobs, i, i+1)
	live := w.sets[j.Set().Name]
	refuse = refuse || live == nil || live.UID != j.Set().UID
	switch j := j.(type) {
	case *RevisionJob:
		result := RevisionResult{Job: j, Failed: refuse}
		if !refuse {
			w.doRevisions(j, &result)
		}
		w.answers = append(w.answers, result)
		if rapid.Bool().Draw(t, "answered") {
			w.answer(t)
		}
	case *CleanupJob:
		result := CleanupResult{Job: j, Failed: refuse || w.neverCleansUp}
		for _, r := range j.Revisions {
			if have := w.revisions[r.Name]; !result.Failed && have != nil && have.ResourceVersion == r.ResourceVersion {
				w.dropRevision(r.Name)
				result.Deleted = append(result.Deleted, r)
			}
		}
		w.book.Step(result)
	case *ClaimJob:
		w.book.Step(w.doClaims(j, refuse))
	}
}

// answer tells what came of jobs about revisions.
func (w *world) answer(t *rapid.T) {
	for _, result := range w.answers {
		w.book.Step(result)
		w.checkNotHeld(t, result.Job, &result)
	}
	w.answers = nil
}

// adopt makes a DaemonSet the controller, unless there is another one: the API
// refuses a second.
func adopt(obj metav1.Object, by *appsv1.DaemonSet) bool {
	if owner := OwnerOf(obj); owner != "" && owner != by.UID {
		return false
	}
	obj.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(by, Kind)})
	return true
}

func (w *world) doRevisions(j *RevisionJob, result *RevisionResult) {
	change := func(r *appsv1.ControllerRevision, by func(*appsv1.ControllerRevision) bool) {
		have := w.revisions[r.Name]
		if have == nil || have.UID != r.UID || result.Failed {
			result.Failed = true
			return
		}
		have = have.DeepCopy()
		result.Failed = !by(have)
		if !result.Failed {
			result.Written = append(result.Written, w.putRevision(have))
		}
	}
	for _, r := range j.Adopt {
		change(r, func(r *appsv1.ControllerRevision) bool { return adopt(r, j.DaemonSet) })
	}
	for _, r := range j.Release {
		change(r, func(r *appsv1.ControllerRevision) bool { r.OwnerReferences = nil; return true })
	}
	if result.Failed {
		return
	}
	switch create := j.Plan.Create; {
	case create != nil && w.revisions[create.Name] != nil:
		w.nameTaken(j, create, result)
	case create != nil:
		result.Hash = history.HashOf(create)
		result.Written = append(result.Written, w.putRevision(create.DeepCopy()))
	case j.Plan.Current != nil:
		result.Hash = history.HashOf(j.Plan.Current)
		if j.Plan.Renumber > 0 {
			change(j.Plan.Current, func(r *appsv1.ControllerRevision) bool { r.Revision = j.Plan.Renumber; return true })
		}
	}
	if result.Failed {
		return
	}
	for _, p := range j.Relabel {
		if have := w.pods[p.UID]; have != nil {
			have = have.DeepCopy()
			have.Labels[appsv1.ControllerRevisionHashLabelKey] = result.Hash
			result.Pods = append(result.Pods, w.putPod(have))
		}
	}
	for _, r := range j.Plan.Duplicates {
		w.dropRevision(r.Name)
		result.Deleted = append(result.Deleted, r)
	}
}

// nameTaken does what a job does about a revision that is there by the name.
func (w *world) nameTaken(j *RevisionJob, create *appsv1.ControllerRevision, result *RevisionResult) {
	have := w.revisions[create.Name].DeepCopy()
	switch ref := metav1.GetControllerOf(have); {
	case ref == nil:
		adopt(have, j.DaemonSet)
		result.Hash = history.HashOf(have)
		result.Written = append(result.Written, w.putRevision(have))
	case ref.Name == j.DaemonSet.Name: // it will go; ours is to follow, by the same hash
		result.Failed, result.Hash = true, history.HashOf(have)
	default:
		d := w.sets[j.DaemonSet.Name].DeepCopy()
		count := int32(w.version)
		d.Status.CollisionCount = &count
		w.putSet(d)
		result.Failed, result.DaemonSet = true, d
	}
}

func (w *world) doClaims(j *ClaimJob, refuse bool) ClaimResult {
	result := ClaimResult{Job: j}
	for _, p := range j.Adopt {
		c := ClaimedPod{Pod: p, Adopted: true, Failed: refuse}
		if have := w.pods[p.UID]; have != nil && !refuse {
			if have = have.DeepCopy(); adopt(have, j.DaemonSet) {
				c.Updated = w.putPod(have)
			}
		}
		result.Pods = append(result.Pods, c)
	}
	for _, p := range j.Release {
		if have := w.pods[p.UID]; have != nil && !refuse && OwnerOf(have) == j.DaemonSet.UID {
			have = have.DeepCopy()
			have.OwnerReferences = nil
			w.putPod(have)
		}
		result.Pods = append(result.Pods, ClaimedPod{Pod: p, Failed: refuse})
	}
	return result
}

func (w *world) tick(d time.Duration) {
	w.now = w.now.Add(d)
	w.book.Step(Now{w.now})
}

// TestInTheEndEverythingIsWhoseItShouldBe lets things happen in any order, and in
// the end compares with what follows from the objects alone.
func TestInTheEndEverythingIsWhoseItShouldBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.neverCleansUp = rapid.IntRange(0, 4).Draw(t, "never cleans up") == 0
		w.edit(t)
		t.Repeat(map[string]func(*rapid.T){
			"edit": w.edit, "edit 2": w.edit, "drop": w.drop, "pod": w.pod, "pod 2": w.pod, "twin": w.twin,
			"finish": func(t *rapid.T) {
				if len(w.jobs) > 0 {
					w.finish(t, rapid.IntRange(0, len(w.jobs)-1).Draw(t, "job"), rapid.IntRange(0, 3).Draw(t, "refused") == 0)
				}
			},
			"answer":  w.answer,
			"collect": func(*rapid.T) { w.collect() },
			"deliver": func(t *rapid.T) { w.deliver(t, rapid.IntRange(0, len(w.events)).Draw(t, "events")) },
			"tick":    func(t *rapid.T) { w.tick(time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond) },
		})
		w.collect()
		for range 60 {
			w.deliver(t, len(w.events))
			for len(w.jobs) > 0 {
				w.finish(t, 0, false)
			}
			w.answer(t)
			w.tick(time.Minute)
		}
		w.deliver(t, len(w.events))
		w.check(t)
	})
}

func (w *world) check(t *rapid.T) {
	for _, p := range w.pods {
		var taker *appsv1.DaemonSet
		for _, name := range slices.Sorted(maps.Keys(w.sets)) {
			if d := w.sets[name]; p.Labels["app"] == d.Spec.Selector.MatchLabels["app"] && (taker == nil || OwnerOf(p) == d.UID) {
				taker = d
			}
		}
		var want types.UID
		if taker != nil {
			want = taker.UID
		}
		if got := OwnerOf(p); got != want {
			t.Fatalf("pod %s belongs to %q, want %q", p.Name, got, want)
		}
		if info, told := w.rows.pods[p.UID]; told != (want != "") || told && info != fact.OfPod(p, want) {
			t.Fatalf("of pod %s the matrix knows %+v", p.Name, info)
		}
	}
	if len(w.rows.sets) != len(w.sets) {
		t.Fatalf("the matrix has %d rows for %d DaemonSets", len(w.rows.sets), len(w.sets))
	}
	for _, d := range w.sets {
		w.checkSet(t, d)
	}
	if findings := w.book.Audit(); len(findings) > 0 {
		t.Fatalf("the audit found %q", findings)
	}
}

func (w *world) checkSet(t *rapid.T, d *appsv1.DaemonSet) {
	var same, spare int
	var newest *appsv1.ControllerRevision
	for _, r := range w.revisions {
		if OwnerOf(r) == "" && r.Labels["app"] == d.Spec.Selector.MatchLabels["app"] {
			t.Fatalf("revision %s was not adopted", r.Name)
		}
		if OwnerOf(r) != d.UID {
			continue
		}
		if newest == nil || r.Revision > newest.Revision {
			newest = r
		}
		switch {
		case history.Holds(r, &d.Spec.Template, nil, nil):
			same++
		case w.rows.PodsOfRevision(d.UID, history.HashOf(r)) == 0:
			spare++
		}
	}
	row := w.rows.sets[d.UID]
	if same != 1 || !history.Holds(newest, &d.Spec.Template, nil, nil) {
		t.Fatalf("%s has %d revisions of its template, and not as the newest", d.Name, same)
	}
	if row.Held || row.Generation != d.Generation || row.Revision != history.HashOf(newest) {
		t.Fatalf("the row of %s is %+v, want generation %d and revision %s", d.Name, row, d.Generation, history.HashOf(newest))
	}
	if spare > 1 && !w.neverCleansUp {
		t.Fatalf("%s keeps %d old revisions that no pod has", d.Name, spare)
	}
}
