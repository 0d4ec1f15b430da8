package row

import (
	"testing"
	"time"
	"unsafe"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// A fleet is mostly cells that are as they should be. Each is small.
func TestSettledCellIsSmall(t *testing.T) {
	const most = 150 // bytes, without the pod
	r := fleetRow(1)
	c := r.cells["node-00000"]
	size := unsafe.Sizeof(*c) + uintptr(cap(c.pods))*unsafe.Sizeof(c.pods[0])
	if why := r.because(c); why != AsWanted || c.tries != nothing || size > most {
		t.Errorf("a cell with [%s] and %+v takes %d bytes, want %d at most", why, *c.tries, size, most)
	}
}

// A node whose clock is behind says that its pod is ready since before it was made. That
// must not shorten what the pod has to be ready for, or a soak.
func TestClockBehindDoesNotAge(t *testing.T) {
	made := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := made.Add(5 * time.Second)
	p := &Pod{}
	p.Update(fact.Pod{UID: "pod", Bound: true, Created: made}, made)
	p.Update(fact.Pod{UID: "pod", Bound: true, Created: made, Ready: true, ReadySince: made.Add(-time.Hour)}, now)
	if at, ok := p.availableAt(60); !ok || at.Before(made.Add(time.Minute)) {
		t.Errorf("with minReadySeconds of 60 a pod of %v is available from %v on", made, at)
	}
	if since := p.since(0); since.Before(made) {
		t.Errorf("a pod that was made at %v soaks since %v", made, since)
	}
}

// Nobody says since when a node has given what a resize asked for an hour before. It counts from when that is seen.
func TestAResizeCountsFromWhenItIsSeenToBeDone(t *testing.T) {
	asked := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	is := fact.Pod{UID: "pod", Bound: true, Created: asked.Add(-time.Hour), Ready: true, ReadySince: asked.Add(-time.Hour),
		Resized: true, Pointed: asked}
	p, now := &Pod{}, asked.Add(time.Hour)
	p.Update(is, asked)
	is.Mounted = asked
	p.Update(is, now)
	if since := p.since(0); !since.Equal(now) {
		t.Errorf("a resize that was seen to be done at %v counts from %v", now, since)
	}
}

// Of the pods that are on their way out the one that ends last says until when the node is between two daemons.
func TestWhatEndsLastCounts(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ending := func(in, grace time.Duration, ready bool) *Pod {
		p := &Pod{}
		p.Update(fact.Pod{UID: "pod", Bound: true, Terminating: true, WasReady: ready, Revision: "old",
			EndsBy: now.Add(in), Grace: grace}, now)
		return p
	}
	var d standing.Daemon
	for _, p := range []*Pod{
		ending(10*time.Second, 30*time.Second, false), ending(time.Minute, 2*time.Minute, false),
		ending(20*time.Second, 20*time.Second, true),
	} {
		if p.leaves(&d) != 1 {
			t.Errorf("a pod that ends by %s does not occupy its node", p.info.EndsBy)
		}
	}
	want := standing.Daemon{Ending: "old", Was: standing.WasAvailable, EndsBy: now.Add(time.Minute), Grace: 2 * time.Minute}
	if d != want {
		t.Errorf("got %+v, want %+v", d, want)
	}
}

// A pod that names no node and is gone is not given back when the row ends.
func TestReleaseGivesBackNoPodThatIsGone(t *testing.T) {
	r := fleetRow(1)
	p := &Pod{}
	p.Update(fact.Pod{UID: "adrift", Name: "adrift", Owner: "logs", Revision: "a"}, start)
	r.attach(p)
	r.detach(p)
	if got := r.Release(); len(got) != 1 || got[0].Info().UID != "node-00000" {
		t.Errorf("%d pods are given back, want that of the node alone", len(got))
	}
}

// Of two pods that a node has without surge one stays, whichever is older.
func TestOneOfTwoPodsStays(t *testing.T) {
	for _, age := range []time.Duration{30 * time.Minute, 2 * time.Hour} {
		r := fleetRow(1)
		p := &Pod{}
		p.Update(fact.Pod{UID: "second", Name: "second", Owner: "logs", Node: "node-00000", Bound: true, Revision: "b",
			Ready: true, ReadySince: start.Add(-age), Created: start.Add(-age)}, start)
		r.attach(p)
		j := r.judge(r.cells["node-00000"], r.order("node-00000"))
		gone := map[*Pod]bool{}
		for _, rm := range j.todo.removals {
			gone[rm.pod] = true
		}
		if len(gone) != 1 {
			t.Errorf("of a pod of an hour and one of %s %d are to go, want one", age, len(gone))
		}
	}
}

// Creations that were in flight together, and fail one after the other, make one pause.
func TestFailuresInFlightTogetherPauseOnce(t *testing.T) {
	r := fleetRow(1)
	r.adjust(&r.fresh, action.Failed)
	until := r.fresh.until
	r.now = until.Add(-time.Millisecond)
	r.adjust(&r.fresh, action.Failed)
	if !until.After(start) || !r.fresh.until.Equal(until) {
		t.Errorf("after the second failure the pause ends at %v, after the first one it was to end at %v", r.fresh.until, until)
	}
}

// A pod that has ended, or is about to, shows that its node had a daemon: it is not one that waits for its first. Why it
// ended is known until it goes.
func TestWhatHasEndedShows(t *testing.T) {
	const crashed, ending = "container d ended with exit code 1", "its old pod has not ended yet"
	for trouble, change := range map[string]func(*fact.Pod){
		crashed: func(p *fact.Pod) { p.Phase, p.Trouble = fact.PodFailed, crashed },
		ending:  func(p *fact.Pod) { p.Terminating, p.Trouble = true, crashed },
	} {
		r := fleetRow(1)
		c := r.cells["node-00000"]
		is := c.pods[0].info
		change(&is)
		r.change(c.pods[0], is)
		if d, _ := r.facts(c); !d.Ended || d.Revision != "" || d.Trouble != trouble {
			t.Errorf("the daemon is %+v, want one in trouble since %s", d, trouble)
		}
	}
}

// When a pod that runs was pointed at other content, or resized, is by the clock of the controller that did that.
func TestTimesThatAreNotTheAPIs(t *testing.T) {
	for _, given := range []bool{false, true} {
		p := &Pod{info: fact.Pod{Created: start, BoundAt: start}}
		want := start
		if given {
			want = start.Add(time.Hour)
			p.info.Pointed = want
		}
		var d standing.Daemon
		p.stays(&d)
		if d.Given != given || !d.Made.Equal(want) || !d.Bound.Equal(want) {
			t.Errorf("pointed: %t: %+v", given, d)
		}
	}
}

// A pod that does not say since when it is ready soaks since it was made.
func TestAPodOfNoTimeSoaksSinceItWasMade(t *testing.T) {
	p := &Pod{}
	p.Update(fact.Pod{UID: "pod", Bound: true, Created: start, Ready: true}, start.Add(time.Hour))
	if since := p.since(5); !since.Equal(start.Add(5 * time.Second)) {
		t.Errorf("a pod that was made at %v is available since %v", start, since)
	}
}

// A pod that was made, and is not seen for long, may be there all the same.
func TestAPodThatIsNotSeenMayBeThere(t *testing.T) {
	for _, answered := range []bool{true, false} {
		c := &cell{tries: &tries{creating: creation{name: "pod", answered: answered, until: start}}}
		c.expire(start, time.Minute)
		until := start.Add(time.Minute)
		if in := c.unanswered == "pod" && c.unansweredUntil.Equal(until); in != answered || c.creating.name != "" {
			t.Errorf("answered %v: it is in doubt: %v, under way: %q", answered, in, c.creating.name)
		}
	}
}

// A deletion that is seen before its answer is in no doubt, whatever the answer is.
func TestADeletionThatIsSeenIsInNoDoubt(t *testing.T) {
	for _, seen := range []bool{true, false} {
		r := fleetRow(1)
		p := r.cells["node-00000"].pods[0]
		is := p.info
		is.Terminating = seen
		r.change(p, is)
		r.deleted(&action.DeletePod{Node: is.Node, PodUID: is.UID}, action.Unknown)
		if p.unsureUntil.IsZero() != seen {
			t.Errorf("seen %v: it is in doubt until %v", seen, p.unsureUntil)
		}
	}
}
