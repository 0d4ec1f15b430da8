package standing

// State is what a node does in a rollout. Exactly one holds for each node.
type State uint8

// The states.
const (
	// Outside: no revision's rules want a daemon there.
	Outside State = iota
	// LeftOut: it has no daemon, and is to have none.
	LeftOut
	// Untouched: it has what it had before, or waits for its first daemon.
	Untouched
	// Broken: untouched, and its daemon is not available.
	Broken
	// Roomless: untouched, and the scheduler finds no room for its pod, which is not of the target.
	Roomless
	// Unmoved: untouched, since every try to change it has failed for long.
	Unmoved
	// Awaiting: it has what it had before, and is to have the target's images before that changes.
	Awaiting
	// Unfetched: it has what it had before, and cannot have the images by its own fault.
	Unfetched
	// Taken: its change was let begin, and its old pod is still there.
	Taken
	// Absent: its old pod is gone or going, and the next one is not made.
	Absent
	// Unbound: the next pod is made and not bound.
	Unbound
	// Starting: the pod that it is to have is on its way up.
	Starting
	// Soaking: that pod is available, not yet for long enough.
	Soaking
	// Soaked: it has what it is to have.
	Soaked
	// Leaving: its daemon is being taken away for good.
	Leaving
	// Failed: the target fails on it, or did and has not been well for long enough.
	Failed
	// Kept: the target fails on it, such as that its pod is refused, and it has another daemon that is available.
	Kept
	// Stuck: the pod does not come up, and the target is not to blame.
	Stuck
	// Crowded: the scheduler finds no room for the pod that it is to have.
	Crowded
	// Faulty: the node itself is out of order.
	Faulty
	// Maintained: somebody works on the node.
	Maintained
	// Lingering: its old pod was to end and does not.
	Lingering
	// Flapping: its pod keeps becoming ready again, for longer than a soak may take.
	Flapping

	stateCount
)

// Cause is who made a node's daemon unavailable.
type Cause uint8

// The causes.
const (
	// Nobody: the rollout did not.
	Nobody Cause = iota
	// Us: the rollout took an available daemon away, and none has been available since.
	Us
	// UnderWay: the rollout is at it.
	UnderWay

	causeCount
)

// Classify gives the state of a node that some revision's rules want.
func Classify(in *Input) State {
	d := in.Daemon
	switch {
	case in.Leaves:
		return classifyLeaving(in)
	case in.Failed && !(in.up() && in.Back):
		return in.failing()
	case in.up():
		return classifyUp(in)
	case in.Fault != "":
		return in.faulty()
	case in.Has() && in.Crowded:
		if in.Changing && !in.Back && d.Revision != in.Target {
			return Roomless // what it waits for may have room
		}
		return Crowded
	case !in.Has() && (in.Want == "" || d.Revision != ""):
		return classifyOutdated(in)
	case d.Revision == "" && IsPast(in.Lingers, in.Now):
		return Lingering
	case in.Lost && d.Revision == "" && d.Ending == "":
		return Broken // until its own step
	case in.stuck():
		return Stuck
	case in.First:
		return Untouched
	case in.Refused:
		return Stuck
	case d.Revision == "":
		return Absent
	case d.Bound.IsZero():
		return Unbound
	}
	return Starting
}

// classifyLeaving is for a node that is to have no daemon.
func classifyLeaving(in *Input) State {
	d := in.Daemon
	switch {
	case d.Empty() && in.Joins && !in.Back:
		return Untouched // the target is not for it yet
	case d.Empty():
		return LeftOut
	case in.Failed && d.Revision != "":
		return in.failing()
	case in.Fault != "":
		return in.faulty()
	case d.Revision == "" && IsPast(in.Lingers, in.Now):
		return Lingering
	case in.Begun, d.Revision == "":
		return Leaving
	case IsPast(in.Unmoved, in.Now):
		return Unmoved
	case !d.Available:
		return Broken
	}
	return Untouched
}

// classifyUp is for a node whose pod is the one that is to be there, and available.
func classifyUp(in *Input) State {
	switch {
	case in.Daemon.Revision != in.Target && !in.Back:
		return Untouched // the target is not for it yet
	case !in.Changing, in.Back, !in.Soaked.After(in.Now):
		return Soaked
	case in.Patience.After(in.Now):
		return Soaking
	case in.Maintained:
		return Maintained
	}
	return Flapping
}

// classifyOutdated is for a node whose pod has another revision.
func classifyOutdated(in *Input) State {
	switch {
	case in.Begun:
		return Taken
	case IsPast(in.Unmoved, in.Now):
		return Unmoved
	case in.Fetch.Images == NodeCannot:
		return Unfetched
	case in.Fetch.Images == Awaited:
		return Awaiting
	case in.Daemon.Available, in.Daemon.Revision == "":
		return Untouched
	}
	return Broken
}
