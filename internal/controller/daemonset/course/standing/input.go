package standing

import (
	"time"

	"github.com/everynode/everynode/internal/loop/deadline"
)

// Input is all that a node's state follows from.
type Input struct {
	Now    time.Time
	Daemon *Daemon
	// Fault is what is wrong with the node, Maintained that it is somebody's work on it.
	Fault      string
	Maintained bool
	// Want is the revision that a pod made now is to have, "" if none is to be made; Leaves
	// tells that the node is to have no daemon by its rules. Lost tells that the revision cannot be read, so that
	// no pod of it can be made.
	Want         string
	Leaves, Lost bool
	// Target is where the change goes, Back that nodes return to the stable revision.
	Target         string
	Back, Changing bool
	// IsNew: there is no stable revision, and no steps. First: nothing was done yet on a node that
	// is to get its first daemon. Joins: it gets that by the target's rules. Departs: these take it away.
	IsNew, First, Joins, Departs bool
	// Begun: its change was let begin. Failed: the target counts as failed on it.
	Begun, Failed bool
	// Crowded: the scheduler has said its word. Restarted: the pod has, too often. Hopeless: waiting for
	// it will not help. Refused: the API has refused its next pod for long enough.
	Crowded, Restarted, Hopeless, Refused bool
	// Late is when the pod is to be available, Lingers when the old one counts as not
	// ending, Soaked when it has been available for long enough, Patience until when that
	// may take, Room until when the scheduler may still find some, Sure when the pod's trouble counts as
	// lasting, Recovers until when it may heal by itself, Unmoved from when every try to change the node has failed
	// for long. Zero times mean never.
	Late, Lingers, Soaked, Patience, Room, Sure, Recovers, Unmoved time.Time
	// Fetch is whether the node has the target's images, where it is to have them before its daemon is taken away.
	Fetch Fetching
}

// Fetching is whether a node has the images of the target.
type Fetching struct {
	Wish   Wish
	Images HasFetched
	// Until is when Awaited ends by time alone; zero if it does not.
	Until time.Time
	// Queued: it is to be asked, once fewer others are. Nobody's time runs.
	Queued bool
	// Why is what the node says beside.
	Why string
}

// Wish is whether a node is to fetch images.
type Wish uint8

// The cases: it need not, it was asked or may not be now, it is to be asked.
const (
	NoWish Wish = iota
	Keep
	Ask
)

// HasFetched is whether a node has images, and whose fault it is if not.
type HasFetched uint8

// The cases.
const (
	// NotAwaited: it need not have them, or was waited for long enough.
	NotAwaited HasFetched = iota
	// Awaited: it has not answered, or its failure has not lasted.
	Awaited
	// HasImages: it has them, or nothing else is to be found out.
	HasImages
	// NodeCannot and NobodyCan: it cannot have them, by its own fault and by the revision's.
	NodeCannot
	NobodyCan
)

// Lacks reports whether the node's daemon is not to be taken away yet, for want of images.
func (f *Fetching) Lacks() bool {
	return f.Images == Awaited || f.Images == NodeCannot || f.Images == NobodyCan
}

// IsPast reports whether there is such a time, and it has come.
func IsPast(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// Has reports whether the node has a pod of the revision that it is to have.
func (in *Input) Has() bool { return in.Want != "" && in.Daemon.Revision == in.Want }

func (in *Input) up() bool { return in.Has() && !in.Daemon.Since.IsZero() }

// Stalls reports whether the pod that the node is to have is there, and does not come up.
func (in *Input) Stalls() bool { return in.Has() && !in.up() && in.stuck() }

// stuck reports whether the pod will not come up in time.
func (in *Input) stuck() bool { return in.Hopeless || in.Restarted || IsPast(in.Late, in.Now) }

// failing is the state of a node on which the target fails.
func (in *Input) failing() State {
	switch d := in.Daemon; {
	case d.Revision == in.Target:
	case d.Available:
		return Kept
	case d.Revision != "" && in.Fault != "": // it is not the target that is down there
		return in.faulty()
	}
	return Failed
}

// faulty is the state of a node that is out of order.
func (in *Input) faulty() State {
	if in.Maintained {
		return Maintained
	}
	return Faulty
}

// IsSick reports whether the node itself is out of order, and nobody has it so while he works on it.
func (in *Input) IsSick() bool { return in.Fault != "" && !in.Maintained }

// StaysDown reports whether the node's daemon, which is not available, will not be for as long as its own step has not
// begun, or nobody mends what is wrong. Where there is no revision to go back to, a daemon that is lost is not made
// again before then.
func (in *Input) StaysDown(s State, e Effects) bool {
	d := in.Daemon
	return !d.Comes.After(in.Now) &&
		(e.Has(Fault) || s == Maintained || s == Unmoved || s.Verdict() == FailedRevision && !in.Back ||
			in.Want == "" && d.Empty())
}

// Wake is when the state may change by time alone; zero if it does not.
func (in *Input) Wake(s State) time.Time {
	switch s {
	case Soaking:
		return deadline.Sooner(in.Soaked, in.Patience)
	case Flapping, Maintained, Failed, Kept:
		if !in.Daemon.Since.IsZero() {
			return in.Soaked
		}
	case Starting:
		return in.Late
	case Absent:
		return in.Lingers
	case Unbound:
		return in.Room
	case Untouched, Broken, Roomless, Awaiting:
		return in.Unmoved
	}
	return time.Time{}
}

// Overdue is when the second pod of the node does not count as on its way any more: neither the one that is to end,
// nor the one that is to come up. So for a pod of a node that is to have none. Zero if that is not to come.
func (in *Input) Overdue() (at time.Time) {
	if (in.Daemon.Two || in.Leaves) && in.Lingers.After(in.Now) {
		at = in.Lingers
	}
	if in.Daemon.Two && in.Late.After(in.Now) {
		at = deadline.Sooner(at, in.Late)
	}
	return at
}
