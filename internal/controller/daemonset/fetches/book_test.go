package fetches

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

var noon = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)

// world is a book, and what the API and the matrix know.
type world struct {
	t rapid.TB
	*matrix.Matrix
	book    *Book
	now     time.Time
	daemons map[types.UID]*corev1.Pod
	// told is what the matrix was told last, said of DaemonSet logs.
	told map[types.UID]fetch.Report
	said string
	spec corev1.PodSpec
	// broken is the node for which there is none.
	broken string
	// pods are those that fetch, by name.
	pods map[string]*corev1.Pod
	uids int
	// refuses says why pods are not made; "" has them made.
	refuses string
	// stays is how many deletions fail from now on; dead has nodes let no pod go that is deleted.
	stays int
	dead  func(daemon types.UID) bool
	// late keeps it to the API that pods were made.
	late bool
	// taken is whose pods' names somebody else has; tries is how often pods were to be made.
	taken map[types.UID]bool
	tries map[types.UID]int
	// atOnce is how many pods may be there, deadline how long each may take.
	atOnce   int
	deadline time.Duration
}

// start is a DaemonSet with a daemon on each of so many nodes that follows a policy.
func start(t rapid.TB, nodes int) *world {
	t.Helper()
	w := &world{t: t, Matrix: matrix.New(row.Config{}), daemons: map[types.UID]*corev1.Pod{}, pods: map[string]*corev1.Pod{},
		told: map[types.UID]fetch.Report{}, tries: map[types.UID]int{}, atOnce: 2, deadline: 10 * time.Minute,
		dead: func(types.UID) bool { return false }}
	w.spec.Containers = []corev1.Container{{Image: "agent:2"}}
	for i := range nodes {
		uid := types.UID(fmt.Sprint("d", i))
		w.daemons[uid] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "logs-" + string(uid), UID: uid}}
	}
	w.restart()
	return w
}

// restart begins with a book that knows what the API has.
func (w *world) restart() {
	w.book = New(told{w}, "everynode:1")
	w.book.Objects = w
	w.Matrix = matrix.New(row.Config{})
	w.sleep(0)
	for uid := range w.daemons {
		w.Retell(uid)
	}
	for _, p := range w.pods {
		w.book.Tell(p, false)
	}
	w.book.Step(fact.Rollout{UID: "logs"})
	w.book.Step(fact.DaemonSet{UID: "logs", Namespace: "ns", Name: "logs", Generation: 1, Revision: "b"})
}

func (w *world) Step(e matrix.Event) {
	switch e := e.(type) {
	case fact.Pod:
		w.told[e.UID] = e.Fetch
	case fact.DaemonSet:
		w.said = e.FetchHindered
		return
	case fact.Rollout, fact.RolloutGone, fact.DaemonSetGone:
		return
	}
	w.Matrix.Step(e)
}

func (w *world) MayFetch(types.UID, string) (atOnce int, patience time.Duration, ok bool) {
	return w.atOnce, w.deadline, true
}

func (w *world) Pod(uid types.UID) *corev1.Pod { return w.daemons[uid] }

func (w *world) Template(types.UID, string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{Spec: w.spec}
}

func (w *world) Spec(_ types.UID, _, node string) (*corev1.PodSpec, error) {
	if node == w.broken {
		return nil, errors.New("there is no spec")
	}
	return &w.spec, nil
}

func (w *world) Retell(uid types.UID) {
	if d := w.daemons[uid]; d != nil {
		w.book.Step(fact.Pod{UID: uid, Name: d.Name, Owner: "logs", Node: "n-" + string(uid), Bound: true, Revision: "a"})
	}
}

// rows of the book are the world, but for the pods' objects.
type told struct{ *world }

func (r told) Pod(uid types.UID) (fact.Pod, bool) { return r.Matrix.Pod(uid) }

func (w *world) ask(revision string, daemons ...types.UID) {
	for _, uid := range daemons {
		w.book.Takes(&action.FetchImages{Target: action.Target{UID: "logs", Namespace: "ns", Name: "logs"}, Node: "n-" + string(uid),
			PodName: "logs-" + string(uid), PodUID: uid, Revision: revision})
	}
	w.work()
}

// work does all jobs.
func (w *world) work() {
	for jobs := w.book.Jobs(); len(jobs) > 0; jobs = w.book.Jobs() {
		for _, j := range jobs {
			if j.Make != nil {
				w.tries[j.of]++
			}
			if j.Make != nil && w.taken[j.of] {
				w.book.TellResult(Result{Job: j, Taken: "there is another pod of the name"})
				continue
			}
			w.book.TellResult(Result{Job: j, Why: w.do(j)})
		}
	}
}

func (w *world) do(j Job) string {
	switch {
	case j.Make != nil && w.refuses != "":
		return w.refuses
	case j.Make != nil && w.pods[j.Make.Name] == nil:
		w.uids++
		p := j.Make.DeepCopy()
		p.UID, p.CreationTimestamp = types.UID(fmt.Sprint("p", w.uids)), metav1.NewTime(w.now)
		w.pods[p.Name] = p
		if !w.late {
			w.book.Tell(p, false)
		}
	case j.Delete != nil && w.stays > 0:
		w.stays--
		return "the API server is away"
	case j.Delete != nil:
		p := w.pods[j.Delete.Name]
		if p == nil || p.UID != j.Delete.UID {
			return ""
		}
		if daemon, _ := fetchpod.Of(p); w.dead(daemon) {
			p = p.DeepCopy()
			p.DeletionTimestamp = &metav1.Time{Time: w.now}
			w.pods[p.Name] = p
			w.book.Tell(p, false)
			return ""
		}
		delete(w.pods, p.Name)
		w.book.Tell(p, true)
	case j.Note != nil:
		d := w.daemons[j.of]
		text := string(j.Note)
		d.Annotations = map[string]string{"note": text}
	}
	return ""
}

func (w *world) sleep(d time.Duration) {
	w.now = noon.Add(w.now.Sub(noon) + d)
	if w.now.Before(noon) {
		w.now = noon
	}
	w.book.Tick(w.now)
	w.work()
}

// there names the daemons after which pods fetch now.
func (w *world) there() string {
	var out []string
	for _, p := range w.pods {
		daemon, _ := fetchpod.Of(p)
		out = append(out, string(daemon))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// says has the pod that fetches after a daemon's have that status.
func (w *world) says(daemon types.UID, s corev1.PodStatus) {
	w.t.Helper()
	for name, p := range w.pods {
		if of, _ := fetchpod.Of(p); of == daemon {
			p = p.DeepCopy()
			p.Status = s
			w.pods[name] = p
			w.book.Tell(p, false)
			w.work()
			return
		}
	}
	w.t.Fatalf("no pod fetches after %s: %s", daemon, w.there())
}

func waits(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "image-0", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}}
}

var (
	has  = corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "image-0", ImageID: "i"}}}
	full = waits("ErrImagePull", "no space left on device")
)

func (w *world) check(there string, reports map[types.UID]fetch.Report) {
	w.t.Helper()
	if got := w.there(); got != there {
		w.t.Errorf("pods fetch after %q, want %q", got, there)
	}
	for uid, want := range reports {
		if got := w.told[uid]; got != want {
			w.t.Errorf("the matrix knows of %s %+v, want %+v", uid, got, want)
		}
	}
}

func TestSoManyAtOnceAndNoMore(t *testing.T) {
	w := start(t, 4)
	w.ask("b", "d0", "d1", "d2", "d3")
	asked, queued := fetch.Report{Revision: "b", At: noon}, fetch.Report{Revision: "b", At: noon, Queued: true}
	w.check("d0 d1", map[types.UID]fetch.Report{"d0": asked, "d1": asked, "d2": queued, "d3": queued})
	w.sleep(time.Minute)
	w.says("d0", has)
	later := noon.Add(time.Minute)
	w.check("d1 d2", map[types.UID]fetch.Report{
		"d0": {Revision: "b", At: noon, Reason: fetch.Fetched, Answered: later},
		"d1": asked, "d2": {Revision: "b", At: later}, "d3": queued,
	})
	if text := w.daemons["d0"].Annotations["note"]; !strings.Contains(text, "Fetched") {
		t.Errorf("the daemon's pod says %q", text)
	}
	// Nobody waits for who says nothing until its deadline; it is not asked again.
	w.sleep(9 * time.Minute)
	w.check("d2 d3", map[types.UID]fetch.Report{"d1": asked})
	w.sleep(10 * time.Minute)
	w.check("", nil)
	w.sleep(time.Hour)
	w.check("", nil)
}

func TestWhoCannotHaveTheImagesIsAskedAgain(t *testing.T) {
	w := start(t, 1)
	w.ask("b", "d0")
	w.says("d0", full)
	failed := fetch.Report{Revision: "b", At: noon, Reason: fetch.NoSpace, Why: "no space left on device", Answered: noon}
	w.check("d0", map[types.UID]fetch.Report{"d0": failed})
	w.sleep(failingFor)
	w.check("", map[types.UID]fetch.Report{"d0": failed})
	w.sleep(pause - time.Second)
	w.check("", nil)
	w.sleep(time.Second)
	w.check("d0", map[types.UID]fetch.Report{"d0": failed})
	w.says("d0", has)
	w.check("", map[types.UID]fetch.Report{
		"d0": {Revision: "b", At: noon, Reason: fetch.Fetched, Answered: w.now},
	})
	// Tried again by somebody it is asked from the beginning.
	w.sleep(time.Minute)
	w.ask("b", "d0")
	w.check("d0", map[types.UID]fetch.Report{"d0": {Revision: "b", At: w.now}})
}

// A node that has no room for the pod, or where it fails, gets another one, until nobody waits for it any more.
func TestAPodThatFailsIsMadeAgainUntilItsDeadline(t *testing.T) {
	w := start(t, 1)
	w.ask("b", "d0")
	fails := func() {
		w.says("d0", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu"})
		w.check("", map[types.UID]fetch.Report{
			"d0": {Revision: "b", At: noon, Why: "the pod that fetches them failed: OutOfcpu"},
		})
	}
	for w.now.Before(noon.Add(10 * time.Minute)) {
		fails()
		w.sleep(retryLast - time.Second)
		w.check("", nil)
		w.sleep(time.Second)
		w.check("d0", nil)
	}
	fails()
	w.sleep(time.Hour)
	w.check("", nil)
}

func TestNobodyWaitsForPodsThatAreRefused(t *testing.T) {
	w := start(t, 3)
	w.refuses = "exceeded quota: pods"
	w.ask("b", "d0", "d1", "d2")
	const why = "pods that fetch images are not made: exceeded quota: pods"
	is := fetch.Report{Revision: "b", At: noon, Why: why}
	w.check("", map[types.UID]fetch.Report{"d0": {Revision: "b", At: noon}, "d1": {Revision: "b", At: noon}, "d2": is})
	if w.said != why {
		t.Errorf("the rollout says %q", w.said)
	}
	w.refuses = ""
	w.sleep(retryFirst - time.Second)
	w.check("", nil)
	w.sleep(retryLast)
	w.check("d0 d2", map[types.UID]fetch.Report{"d1": {Revision: "b", At: noon}}) // d1 was tried before
	if w.said != "" {
		t.Errorf("the rollout still says %q", w.said)
	}
}

func TestNobodyWaitsForPodsThatDoNotComeSoFar(t *testing.T) {
	w := start(t, 3)
	w.ask("b", "d0", "d1", "d2")
	stuck := corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{Name: "program", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}}}
	w.says("d0", stuck)
	const why = "the image of Everynode does not start there: not found"
	w.check("d0 d1", map[types.UID]fetch.Report{"d0": {Revision: "b", At: noon, Why: why}, "d2": {Revision: "b", At: noon, Why: why}})
	if w.said != why {
		t.Errorf("the rollout says %q", w.said)
	}
	w.says("d1", has)
	if w.said != "" {
		t.Errorf("the rollout still says %q", w.said)
	}
	// What one node has says nothing of the others then.
	w.says("d0", stuck)
	if w.said != "" {
		t.Errorf("the rollout says %q of one node", w.said)
	}
}

func TestPodsGoWhenNobodyWantsTheirImages(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"taken back":     func(w *world) { w.ask("", "d0") },
		"another":        func(w *world) { w.ask("c", "d0"); w.ask("", "d0") },
		"daemon gone":    func(w *world) { w.book.Step(fact.PodGone("d0")) },
		"policy gone":    func(w *world) { w.book.Step(fact.RolloutGone("logs")) },
		"daemonset gone": func(w *world) { w.book.Step(fact.DaemonSetGone("logs")) },
	} {
		w := start(t, 1)
		w.ask("b", "d0")
		w.check("d0", nil)
		end(w)
		w.work()
		if w.there() != "" {
			t.Errorf("%s: pods fetch after %s", name, w.there())
		}
		w.sleep(time.Hour)
		if w.there() != "" {
			t.Errorf("%s: later pods fetch after %s", name, w.there())
		}
	}
}

// A pod that is bound to a dead node stays until the node is gone. The others' turns come.
func TestAPodThatADeadNodeKeepsHoldsUpNobody(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"at its deadline":  func(w *world) { w.sleep(10 * time.Minute) },
		"another revision": func(w *world) { w.ask("c", "d0", "d1", "d2", "d3") },
	} {
		w := start(t, 4)
		w.dead = func(types.UID) bool { return true }
		w.ask("b", "d0", "d1", "d2", "d3")
		end(w)
		w.check("d0 d1", nil)
		w.sleep(unseen)
		if got := w.there(); got == "d0 d1" {
			t.Errorf("%s: pods fetch after %q, and no others", name, got)
		}
	}
}

// Nor are pods forgotten that were made, and are not seen yet. One that was never made is not waited for.
func TestPodsOfAnotherRevisionCountBeforeTheyAreSeen(t *testing.T) {
	for name, seen := range map[string]bool{"seen": true, "never seen": false} {
		w := start(t, 3)
		w.late = true
		w.ask("b", "d0", "d1", "d2")
		w.ask("c", "d0", "d1", "d2")
		w.check("d0 d1", nil)
		made := slices.Collect(maps.Values(w.pods))
		w.late = false
		if seen {
			for _, p := range made {
				w.book.Tell(p, false)
			}
			w.work()
			w.check("d0 d1", nil)
		} else {
			clear(w.pods)
			w.sleep(unseen - 1)
			w.check("", nil)
			w.sleep(1)
			w.check("d0 d1", nil)
		}
		for _, p := range w.pods {
			if _, revision := fetchpod.Of(p); revision != "c" {
				t.Errorf("%s: %s is of revision %s", name, p.Name, revision)
			}
		}
	}
}

// A controller that has just started counts pods that it knew before their daemons.
func TestPodsOfAnEarlierControllerCount(t *testing.T) {
	w := start(t, 3)
	w.ask("b", "d0", "d1", "d2")
	made := slices.Collect(maps.Values(w.pods))
	w.book, w.Matrix = New(told{w}, "everynode:1"), matrix.New(row.Config{})
	w.book.Objects = w
	for _, p := range made {
		w.book.Tell(p, false)
	}
	for uid := range w.daemons {
		w.Retell(uid)
	}
	w.book.Step(fact.Rollout{UID: "logs"})
	w.book.Step(fact.DaemonSet{UID: "logs", Namespace: "ns", Name: "logs", Generation: 1, Revision: "c"})
	w.stays = 2
	w.ask("c", "d0", "d1", "d2")
	w.check("d0 d1", nil)
}

// Pods of two revisions are no more at once than of one.
func TestPodsOfAnotherRevisionCountUntilTheyAreGone(t *testing.T) {
	w := start(t, 3)
	w.ask("b", "d0", "d1", "d2")
	w.stays = 2
	w.ask("c", "d0", "d1", "d2")
	w.check("d0 d1", nil)
	w.sleep(retryFirst)
	w.check("d0 d1", nil)
	for name, p := range w.pods {
		if _, revision := fetchpod.Of(p); revision != "c" {
			t.Errorf("%s is of revision %s", name, revision)
		}
	}
}

func TestADeletionThatFailsIsTriedAgain(t *testing.T) {
	w := start(t, 2)
	w.ask("b", "d0", "d1")
	w.stays = 2
	w.says("d0", has)
	w.ask("", "d1")
	w.check("d0 d1", nil)
	w.sleep(retryFirst - time.Second)
	w.check("d0 d1", nil)
	at, ticks := w.book.NextTick()
	if !ticks || !at.Equal(noon.Add(retryFirst)) {
		t.Errorf("it goes on at %v", at)
	}
	w.sleep(time.Second)
	if w.stays > 0 || w.there() == "d0 d1" {
		t.Errorf("pods fetch after %s, and %d deletions were not tried", w.there(), w.stays)
	}
	w.sleep(retryFirst)
	w.check("", nil)
}

func TestAnotherControllerGoesOn(t *testing.T) {
	w := start(t, 3)
	w.ask("b", "d0", "d1")
	w.sleep(time.Minute)
	lost := w.pods[(&fetchpod.Order{Owner: "logs", DaemonUID: "d1", Revision: "b"}).Name()]
	delete(w.daemons, "d1")
	w.restart()
	w.check("d0 d1", nil)
	w.work()
	w.check("d0", map[types.UID]fetch.Report{"d0": {Revision: "b", At: noon}})
	if lost == nil {
		t.Error("no pod fetched after d1")
	}
	w.says("d0", has)
	w.check("", map[types.UID]fetch.Report{"d0": {Revision: "b", At: noon, Reason: fetch.Fetched, Answered: w.now}})
}

func TestAPodOfAnotherRevisionGoes(t *testing.T) {
	w := start(t, 1)
	w.ask("b", "d0")
	other := (&fetchpod.Order{Namespace: "ns", Owner: "logs", DaemonUID: "d0", Revision: "a", Spec: &w.spec}).Pod()
	other.UID = "other"
	w.pods[other.Name] = other
	w.book.Tell(other, false)
	w.work()
	if len(w.pods) != 1 || w.pods[other.Name] != nil {
		t.Errorf("pods are %v", w.pods)
	}
	w.says("d0", has)
	w.check("", map[types.UID]fetch.Report{"d0": {Revision: "b", At: noon, Reason: fetch.Fetched, Answered: noon}})
}

func TestWhatADaemonsPodSaysIsBelieved(t *testing.T) {
	w := start(t, 1)
	for reason, want := range map[fetch.Reason]bool{fetch.Fetched: true, fetch.NoSpace: false} {
		r := fetch.Report{Revision: "b", At: noon, Reason: reason}
		w.daemons["d0"].Annotations = map[string]string{"everynode.io/fetched-images": fmt.Sprintf(
			`{"Revision":"b","At":%q,"Reason":%q}`, noon.Format(time.RFC3339), reason)}
		w.restart()
		if got := w.told["d0"]; (got == r) != want {
			t.Errorf("%s: the matrix knows %+v", reason, got)
		}
	}
}

func TestWithoutAnImageNothingIsDone(t *testing.T) {
	w := start(t, 1)
	w.ask("b", "d0")
	w.book = New(told{w}, "")
	w.book.Objects = w
	if w.book.Takes(&action.FetchImages{Revision: "b"}) {
		t.Error("pods are to ask")
	}
	for _, p := range w.pods {
		w.book.Tell(p, false)
	}
	w.work()
	w.check("", nil)
}

// Who makes a pod of the name first holds up that node alone, which says so, until its deadline or until the name is free.
func TestANameThatSomebodyElseHas(t *testing.T) {
	for _, ends := range []bool{false, true} {
		w := start(t, 2)
		w.taken = map[types.UID]bool{"d0": true}
		w.ask("b", "d0", "d1")
		held := fetch.Report{Revision: "b", At: noon, Why: "there is another pod of the name"}
		w.check("d1", map[types.UID]fetch.Report{"d0": held, "d1": {Revision: "b", At: noon}})
		w.says("d1", has)
		w.check("", map[types.UID]fetch.Report{"d0": held, "d1": {Revision: "b", At: noon, Reason: fetch.Fetched, Answered: noon}})
		if !ends {
			w.sleep(11 * time.Minute)
			w.check("", nil)
			continue
		}
		w.taken = nil
		w.sleep(retryLast)
		w.check("d0", map[types.UID]fetch.Report{"d0": {Revision: "b", At: noon}})
		w.says("d0", has)
		w.check("", map[types.UID]fetch.Report{"d0": {Revision: "b", At: noon, Reason: fetch.Fetched, Answered: w.now}})
	}
}
