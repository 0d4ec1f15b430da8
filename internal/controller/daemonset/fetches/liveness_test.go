package fetches

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/controller/daemonset/course/fetching"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// step is how often nodes say something.
const step = 5 * time.Second

// fleet is a world whose nodes have ways, of which some fail for ever, and a step of a rollout that waits for them.
type fleet struct {
	*world
	t *rapid.T
	// ways are those of the nodes: "" has the images soon, "full" says after a while that it cannot have them, "mute" says
	// nothing, "cramped" has no room for the pod, "taken" has somebody else's pod of the name. Some keep pods.
	ways  map[types.UID]string
	keeps map[types.UID]bool
	after time.Duration // what they say is said so long after the pod was made
	// since is when all were asked last.
	since time.Time
	gate  fetching.Gate[int]
	nodes map[types.UID]*fetching.Node
}

func drawFleet(t *rapid.T) *fleet {
	f := &fleet{world: start(t, rapid.IntRange(1, 8).Draw(t, "nodes")), t: t, ways: map[types.UID]string{}}
	f.taken = map[types.UID]bool{}
	f.keeps = map[types.UID]bool{}
	for i := range len(f.daemons) {
		uid := types.UID(fmt.Sprint("d", i))
		f.ways[uid] = rapid.SampledFrom([]string{"", "", "full", "full", "mute", "cramped", "taken"}).Draw(t, "way")
		f.taken[uid] = f.ways[uid] == "taken"
		f.keeps[uid] = rapid.IntRange(0, 5).Draw(t, "keeps pods") == 0
	}
	f.dead = func(daemon types.UID) bool { return f.keeps[daemon] }
	f.after = rapid.SampledFrom([]time.Duration{0, step, time.Minute}).Draw(t, "after")
	f.drawRules()
	return f
}

func (f *fleet) drawRules() {
	f.atOnce = rapid.IntRange(1, 3).Draw(f.t, "at once")
	f.deadline = rapid.SampledFrom([]time.Duration{20 * time.Second, 2 * time.Minute, 10 * time.Minute}).Draw(f.t, "deadline")
}

// askAll asks all nodes from the beginning.
func (f *fleet) askAll() {
	f.since, f.gate, f.nodes = f.now, fetching.Gate[int]{}, map[types.UID]*fetching.Node{}
	for uid := range f.daemons {
		f.nodes[uid] = &fetching.Node{}
	}
	f.ask("b", slices.Sorted(maps.Keys(f.nodes))...)
}

// pass lets time pass, and has the nodes say what they do.
func (f *fleet) pass() {
	f.sleep(step)
	for _, p := range f.pods {
		daemon, _ := fetchpod.Of(p)
		if f.daemons[daemon] == nil || p.DeletionTimestamp != nil || f.now.Before(p.CreationTimestamp.Add(f.after)) {
			continue
		}
		switch f.ways[daemon] {
		case "":
			f.says(daemon, has)
		case "full":
			f.says(daemon, full)
		case "cramped":
			f.says(daemon, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu"})
		}
	}
}

// waits is how many nodes the step waits for, as the course finds it out.
func (f *fleet) waits() (awaited, queued int) {
	for uid, n := range f.nodes {
		is := n.Look(&fetching.Input{Now: f.now, Wanted: true, May: true, Target: "b", Says: f.told[uid], ByPods: true,
			Deadline: f.deadline})
		if is.Queued {
			queued++
		}
		if is.Images == standing.Awaited {
			awaited++
		}
	}
	f.gate.Look(1, f.since, f.now, awaited, queued > 0, f.deadline, false)
	return awaited, queued
}

// What fails for some nodes for ever does not keep others from being asked: the gate opens once as many turns are over
// as the step has, also after somebody tried again, under other rules, or another controller went on, and where nodes go.
func TestNodesThatFailForEverKeepNobodyFromBeingAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		f.askAll()
		for range rapid.IntRange(0, 3).Draw(t, "events") {
			for range rapid.IntRange(0, 200).Draw(t, "steps before") {
				f.pass()
				f.waits()
			}
			switch rapid.SampledFrom([]string{"again", "edit", "restart", "gone"}).Draw(t, "event") {
			case "again":
				f.drawRules()
			case "edit":
				f.drawRules()
				f.book.Step(fact.Rollout{UID: "logs"})
				f.since, f.gate = f.now, fetching.Gate[int]{}
				continue
			case "restart":
				f.restart()
			case "gone":
				uid := types.UID(fmt.Sprint("d", rapid.IntRange(0, len(f.ways)-1).Draw(t, "who")))
				delete(f.daemons, uid)
				f.book.Step(fact.PodGone(uid))
			}
			f.askAll()
		}
		// One turn more is for the pods that are there before. A pod that its node keeps has its place for half a minute
		// more, and so long a failure must have lasted.
		turns, late := (len(f.nodes)+f.atOnce-1)/f.atOnce+1, 1
		for _, keeps := range f.keeps {
			if keeps {
				late++
			}
		}
		bound := time.Duration(turns)*(f.deadline+step) + time.Duration(late)*unseen
		for f.now.Sub(f.since) < bound {
			f.pass()
			f.waits()
		}
		awaited, queued := f.waits()
		if f.gate.Shut(1) || queued > 0 {
			t.Fatalf("%s after all were asked, %d at once for %s each, %d wait to be asked, and %d are awaited: %v",
				bound, f.atOnce, f.deadline, queued, awaited, f.told)
		}
	})
}
