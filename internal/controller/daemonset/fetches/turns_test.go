package fetches

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Those that cannot have the images, each of which has the only place for a minute, are due again before the others' turns
// have come. They go after those, and then in turn.
func TestWhoWasNeverAskedGoesBeforeWhoFails(t *testing.T) {
	w := start(t, 9)
	w.atOnce = 1
	var all []types.UID
	for i := range 9 {
		all = append(all, types.UID(fmt.Sprint("d", i)))
	}
	w.ask("b", all...)
	turn := func(daemon types.UID) {
		t.Helper()
		w.check(string(daemon), nil)
		w.says(daemon, full)
		w.sleep(failingFor)
	}
	for _, daemon := range all[:6] {
		turn(daemon)
	}
	for _, daemon := range all[6:] { // d0 is due again
		w.check(string(daemon), nil)
		w.says(daemon, has)
	}
	for _, daemon := range all[:6] {
		turn(daemon)
	}
	turn("d0")
	for _, daemon := range all {
		if r := w.told[daemon]; r.Queued || r.Reason == "" {
			t.Errorf("%s is %+v", daemon, r)
		}
	}
}

// Also who is asked once more comes before those where it is tried again.
func TestWhoIsAskedOnceMoreGoesBeforeWhoFails(t *testing.T) {
	w := start(t, 3)
	w.atOnce = 1
	w.ask("b", "d0", "d1", "d2")
	w.says("d0", full)
	w.sleep(failingFor)
	w.says("d1", has)
	w.sleep(pause + time.Minute) // d0 is due, and d2 says nothing
	w.ask("b", "d1")
	w.check("d2", nil)
	w.sleep(w.deadline)
	w.check("d1", nil)
}

func TestWhoWaitsForLongestGoesFirst(t *testing.T) {
	w := start(t, 3)
	w.atOnce = 1
	w.ask("b", "d2")
	w.ask("b", "d1")
	w.sleep(time.Second)
	w.ask("b", "d0")
	w.says("d2", has)
	w.check("d1", nil)
}

// A pod that fails has its place no longer than one that says nothing.
func TestAPodThatFailsGoesAtItsDeadline(t *testing.T) {
	w := start(t, 1)
	w.deadline = failingFor
	w.ask("b", "d0")
	w.sleep(failingFor - time.Second)
	w.says("d0", full)
	w.check("d0", nil)
	w.sleep(time.Second)
	w.check("", nil)
	w.sleep(pause)
	w.check("d0", nil)
}

// A node whose pod cannot be made does not keep the others from being asked either.
func TestWhoIsTriedInVainGoesLast(t *testing.T) {
	w := start(t, 2)
	w.broken = "n-d0"
	w.ask("b", "d0", "d1")
	w.sleep(retryFirst)
	w.check("d1", nil)
}

// Nodes that could not have the images before another controller began are asked after the others.
func TestAnotherControllerAsksThoseLastThatFailed(t *testing.T) {
	w := start(t, 2)
	w.atOnce = 1
	w.daemons["d0"].Annotations = map[string]string{fetchpod.NoteName: fmt.Sprintf(
		`{"Revision":"b","At":%q,"Reason":"NoSpace","Answered":%[1]q}`, noon.Format(time.RFC3339))}
	w.restart()
	w.ask("b", "d0", "d1")
	w.check("d1", nil)
}

// Who is asked once more while its pod goes waits for another one, and nobody's deadline begins meanwhile, unless the
// node lets none go.
func TestWhoIsAskedOnceMoreWhileItsPodGoes(t *testing.T) {
	for name, end := range map[string]func(*world){
		"it has them":      func(w *world) { w.says("d0", has) },
		"it fails":         func(w *world) { w.says("d0", full); w.sleep(failingFor) },
		"the pod failed":   func(w *world) { w.says("d0", corev1.PodStatus{Phase: corev1.PodFailed}) },
		"it stays a while": func(w *world) { w.stays = 1; w.says("d0", has) },
	} {
		w := start(t, 1)
		w.dead = func(types.UID) bool { return true }
		w.ask("b", "d0")
		end(w)
		w.ask("b", "d0")
		queued := fetch.Report{Revision: "b", At: w.now, Queued: true}
		w.check("d0", map[types.UID]fetch.Report{"d0": queued})
		w.sleep(retryFirst)
		w.says("d0", full) // that is of no interest any more
		w.check("d0", map[types.UID]fetch.Report{"d0": queued})
		w.sleep(unseen)
		w.check("d0", map[types.UID]fetch.Report{"d0": {Revision: "b", At: w.now}})
		at := w.now
		for _, p := range w.pods { // the node comes back
			delete(w.pods, p.Name)
			w.book.Tell(p, true)
		}
		w.work()
		w.says("d0", has)
		if r := w.told["d0"]; r != (fetch.Report{Revision: "b", At: at, Reason: fetch.Fetched, Answered: w.now}) {
			t.Errorf("%s: the matrix knows %+v", name, r)
		}
	}
}

// Where one node is asked at a time a name that somebody else has keeps the others waiting no longer.
func TestANameThatSomebodyElseHasTakesUpNoPlace(t *testing.T) {
	w := start(t, 3)
	w.atOnce, w.taken = 1, map[types.UID]bool{"d0": true}
	w.ask("b", "d0", "d1", "d2")
	held := fetch.Report{Revision: "b", At: noon, Why: "there is another pod of the name"}
	w.check("d1", map[types.UID]fetch.Report{"d0": held, "d2": {Revision: "b", At: noon, Queued: true}})
	w.says("d1", has)
	w.check("d2", map[types.UID]fetch.Report{"d0": held, "d2": {Revision: "b", At: noon}})
}

// Nor is a pod made for ever that is never there: where somebody else has its name, or nobody sees it.
func TestAPodThatNeverComesIsMadeUntilTheDeadline(t *testing.T) {
	for name, never := range map[string]func(*world){
		"its name is taken": func(w *world) { w.taken = map[types.UID]bool{"d0": true} },
		"nobody sees it":    func(w *world) { w.late = true },
	} {
		w := start(t, 1)
		never(w)
		w.ask("b", "d0")
		for w.now.Before(noon.Add(time.Hour)) {
			w.sleep(time.Second)
		}
		if tries := w.tries["d0"]; tries < 5 || tries > 6 {
			t.Errorf("%s: it was tried %d times", name, tries)
		}
	}
}

// Limits of a policy that is edited are those of all nodes from then on.
func TestLimitsThatAreEditedHoldAtOnce(t *testing.T) {
	w := start(t, 4)
	w.atOnce = 1
	w.ask("b", "d0", "d1", "d2", "d3")
	edit := func(atOnce int, deadline time.Duration) {
		w.atOnce, w.deadline = atOnce, deadline
		w.book.Step(fact.Rollout{UID: "logs"})
		w.work()
	}
	edit(3, time.Hour)
	w.check("d0 d1 d2", nil)
	w.sleep(10 * time.Minute)
	w.check("d0 d1 d2", nil)
	edit(1, time.Hour)
	w.says("d0", has)
	w.check("d1 d2", nil)
	edit(1, time.Minute)
	w.check("d3", nil)
	w.sleep(time.Minute)
	w.check("", nil)
}

// A pod that nobody can delete ends by itself, a minute after its deadline, and holds up nobody from then on, wanted or not.
func TestAPodThatCannotBeDeletedHoldsUpNobodyForEver(t *testing.T) {
	for revision, next := range map[string]types.UID{"b": "d1", "c": "d0"} {
		w := start(t, 2)
		w.atOnce, w.stays = 1, math.MaxInt
		w.ask("b", "d0", "d1")
		w.says("d0", has)
		w.ask(revision, next)
		w.sleep(w.deadline + time.Minute - time.Second)
		w.check("d0", nil)
		w.sleep(time.Second)
		if r := w.told[next]; r != (fetch.Report{Revision: revision, At: w.now}) {
			t.Errorf("revision %s: the matrix knows %+v", revision, r)
		}
	}
}

// TestManyNodesAreLookedAtInPauses: of each of many nodes is heard something all the while, and each is compared with
// all others.
func TestManyNodesAreLookedAtInPauses(t *testing.T) {
	for _, c := range []struct {
		nodes int
		pause time.Duration
	}{{many - 1, 0}, {many, many * rest}, {3 * many, 3 * many * rest}} {
		w := start(t, c.nodes)
		for i := range c.nodes {
			uid := types.UID(fmt.Sprint("d", i))
			w.book.Takes(&action.FetchImages{Target: action.Target{UID: "logs", Namespace: "ns", Name: "logs"},
				Node: "n-" + string(uid), PodName: "logs-" + string(uid), PodUID: uid, Revision: "b"})
		}
		w.work()
		w.sleep(time.Second)
		first := strings.Fields(w.there())
		if len(first) != w.atOnce {
			t.Fatalf("of %d nodes pods fetch after %q, want %d", c.nodes, first, w.atOnce)
		}
		w.says(types.UID(first[0]), has)
		if at, ok := w.book.NextTick(); c.pause > 0 && (!ok || !at.Equal(w.now.Add(c.pause))) {
			t.Errorf("of %d nodes something is to be done at %s (%t), want in %s", c.nodes, at, ok, c.pause)
		}
		if gone := !slices.Contains(strings.Fields(w.there()), first[0]); gone != (c.pause == 0) {
			t.Errorf("of %d nodes the pod that has pulled is gone: %t", c.nodes, gone)
		}
		w.sleep(c.pause)
		w.sleep(c.pause)
		if now := strings.Fields(w.there()); len(now) != w.atOnce || slices.Contains(now, first[0]) {
			t.Errorf("of %d nodes pods fetch after %q in the end, and after %q before", c.nodes, now, first)
		}
	}
}
