package standing

import (
	"cmp"

	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
)

// unanswered is said of a node of which nobody knows yet what became of the last write.
const unanswered = "the API has not answered yet what became of its pod"

// begun is what there is to say where nothing else is.
var begun = map[Cause]string{UnderWay: "its change has begun, and does not show yet"}

// whys are those that say the same of each node.
var whys = map[State]string{
	Unmoved:  "each try to replace its pod fails, and it is tried again: the DaemonSet's events say why",
	Absent:   "it gets a pod",
	Starting: "its daemon starts",
	Leaving:  "its pod is taken away",
	Stuck:    "its daemon does not become available",
	Failed:   "the revision fails there",
	Kept:     "the revision fails there, and it keeps what it has",
	Flapping: "its pod keeps losing its readiness, for longer than the soak may take",
}

// Why says what there is to say about a node in the state: what it waits for, or what is wrong. By is by whose doing
// its daemon is not available. Of an Untouched one that waits for its turn alone there is nothing to say.
func (in *Input) Why(s State, by Cause) string {
	switch s {
	case Untouched:
		return in.whyUntouched(by)
	case LeftOut:
		return and("revision "+in.Want+" leaves it out", in.besides())
	case Soaking:
		return and("soaks until "+words.Clock(in.Soaked), in.besides())
	case Soaked:
		return cmp.Or(in.besides(), begun[by])
	case Flapping:
		return and(whys[s], in.besides())
	case Broken:
		return in.whyBroken(by)
	}
	return in.whyNotUp(s)
}

// whyNotUp is for states of a node whose daemon does not work, or is being changed.
func (in *Input) whyNotUp(s State) string {
	d := in.Daemon
	switch s {
	case Roomless:
		return "no room for its pod of revision " + in.Want + ", which it is to have until its step begins: " + d.NoRoom
	case Crowded:
		return d.NoRoom
	case Unmoved, Kept:
		return cmp.Or(d.Refused, whys[s])
	case Taken:
		return "its pod of revision " + d.Revision + " is being replaced"
	case Absent, Stuck:
		return cmp.Or(d.Refused, d.Trouble, whys[s])
	case Failed:
		return cmp.Or(d.Refused, d.Trouble, in.Fault, whys[s])
	case Unbound:
		return d.Unbound()
	case Leaving:
		return cmp.Or(d.Trouble, whys[s])
	case Faulty, Maintained:
		return in.Fault
	case Lingering:
		return "its old pod was to end by " + words.Clock(d.EndsBy) + ", and is still there"
	}
	return whys[s]
}

// whyUntouched says what an untouched node waits for beside its turn.
func (in *Input) whyUntouched(by Cause) string {
	d, besides := in.Daemon, ""
	if by == UnderWay {
		besides = in.besides()
	}
	switch {
	case d.Refused != "":
		return d.Refused + "; it is tried again"
	case by == Us && d.Revision == "":
		return "a change took its daemon, and the next one comes when its step begins"
	case by == Us:
		return begun[UnderWay]
	}
	return cmp.Or(besides, begun[by])
}

// besides says what there is beside the newest pod: an older one, or a write without an answer; "" if neither is.
func (in *Input) besides() string {
	d := in.Daemon
	switch {
	case d.Two && !d.EndsBy.IsZero():
		return "its old pod is to end by " + words.Clock(d.EndsBy)
	case d.Two && d.Since.IsZero():
		return "its second pod is not available: " + cmp.Or(d.NoRoom, d.Trouble, d.starts())
	case d.Two && !in.Unmoved.IsZero():
		return "its old pod may not be deleted, and it is tried again: the DaemonSet's events say why"
	case d.Two:
		return "its old pod is still there"
	case d.Unsure:
		return unanswered
	}
	return ""
}

// starts says how far a pod is that nothing troubles.
func (d *Daemon) starts() string {
	if d.Bound.IsZero() {
		return d.Unbound()
	}
	return "it starts"
}

// whyBroken says why a node that is Broken has no available daemon.
func (in *Input) whyBroken(by Cause) string {
	switch why := cmp.Or(in.Daemon.Trouble, "its pod is not ready"); {
	case in.Lost && in.Daemon.Revision == "":
		return "it has no daemon, and none can be made: revision " + in.Want + " is gone or cannot be read"
	case by != Nobody:
		return "its daemon is not available: " + why
	default:
		return "its daemon was not available before: " + why
	}
}

// and joins two things to say, of which the second may be none.
func and(text, more string) string {
	if more == "" {
		return text
	}
	return text + "; " + more
}
