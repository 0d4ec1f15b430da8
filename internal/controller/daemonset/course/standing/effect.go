package standing

// Effect is one of the things that a node counts as. Sums are kept of each.
type Effect uint8

// The effects.
const (
	// Selected: the node belongs to the fleet.
	Selected Effect = iota
	// Given: it has the target, or had.
	Given
	// Done: it has what it is to have, and has soaked. Soaks: not for long enough yet.
	Done
	Soaks
	// Excused: nothing waits for it. Passed: it holds up no further step, since what fails on
	// one node, within the limit, must not hold up all others for ever.
	Excused
	Passed
	// Late: its change is under way, and no further step waits for that, since it came late into its own.
	Late
	// Ours: it is without an available daemon by our doing, or about to be. It uses up
	// maxUnavailable. Busy: so it does, and the target does not fail on it. Where its step has not begun that is by a
	// change, and nothing that waits for the step.
	Ours
	Busy
	// Fault: it is out of order, or its daemon was before. Sick: the node itself is; it counts
	// against the limit of such nodes. Away: somebody works on the node, which is neither.
	Fault
	Sick
	Away
	// Failure: the target fails on it.
	Failure
	// Down: it has no available daemon; it counts against its domains. Stays: until somebody
	// mends the node or the revision, so that who waits for it in its domain holds up no step.
	Down
	Stays
	// Pending: its change may begin. Held: it may, and nothing waits for it.
	Pending
	Held
	// Removed: its daemon was taken away, as it is to be.
	Removed
	// Fetches: its images are awaited. Fetched: it has them, and is to change. Unasked: its agent cannot be asked.
	// Queued: it is asked once fewer others are.
	Fetches
	Fetched
	Unasked
	Queued

	EffectCount
)

// meaning is a row of the table: what a state is called, and what it counts as, always, on the
// way to the target, and while the node's daemon is unavailable by our doing.
type meaning struct {
	verdict               Verdict
	always, forward, ours Effects
}

// meanings is the table. On the way back only nodes that are being changed use up the limit:
// what the target has broken must not keep others with it. A pod that does not end still runs for
// all we know; so many nodes of that kind as nodeFaults allows do not stop a change.
var meanings = [stateCount]meaning{
	Outside:    {verdict: NotSelected},
	LeftOut:    {verdict: NotSelected, always: SetOf(Selected, Done)},
	Untouched:  {verdict: Waiting, always: SetOf(Selected)},
	Broken:     {verdict: NodeFault, always: SetOf(Selected, Fault), ours: SetOf(Ours)},
	Roomless:   {verdict: NoRoom, always: SetOf(Selected, Fault), ours: SetOf(Ours)},
	Unmoved:    {verdict: Waiting, always: SetOf(Selected, Passed), ours: SetOf(Ours)},
	Awaiting:   {verdict: Waiting, always: SetOf(Selected), ours: SetOf(Ours)},
	Unfetched:  {verdict: NoRoom, always: SetOf(Selected, Fault, Excused, Sick), ours: SetOf(Ours)},
	Taken:      {verdict: Changing, always: SetOf(Selected, Ours)},
	Absent:     {verdict: Changing, always: SetOf(Selected, Ours)},
	Unbound:    {verdict: Changing, always: SetOf(Selected, Ours)},
	Starting:   {verdict: Changing, always: SetOf(Selected, Ours)},
	Soaking:    {verdict: Current, always: SetOf(Selected, Soaks)},
	Soaked:     {verdict: Current, always: SetOf(Selected, Done)},
	Leaving:    {verdict: Changing, always: SetOf(Selected, Ours)},
	Failed:     {verdict: FailedRevision, always: SetOf(Selected, Passed), forward: SetOf(Ours), ours: SetOf(Ours)},
	Kept:       {verdict: FailedRevision, always: SetOf(Selected, Passed), ours: SetOf(Ours)},
	Stuck:      {verdict: NodeFault, always: SetOf(Selected, Fault, Excused), ours: SetOf(Ours)},
	Crowded:    {verdict: NoRoom, always: SetOf(Selected, Fault, Excused, Sick), ours: SetOf(Ours)},
	Faulty:     {verdict: NodeFault, always: SetOf(Selected, Fault, Excused), ours: SetOf(Ours)},
	Maintained: {verdict: InMaintenance, always: SetOf(Selected, Away, Excused), ours: SetOf(Ours)},
	Lingering:  {verdict: NodeFault, always: SetOf(Selected, Fault, Excused, Sick)},
	Flapping:   {verdict: NodeFault, always: SetOf(Selected, Fault, Excused, Sick)},
}

// Counts is what a node in a state counts as, by whose doing it is unavailable.
func (s State) Counts(by Cause, back bool) Effects {
	m := &meanings[s]
	e := m.always
	if !back {
		e |= m.forward
	}
	switch by {
	case Us:
		e |= m.ours
	case UnderWay:
		e = e.With(Ours, s != Outside)
	}
	return e
}

// Verdict is what people are told of a node in the state.
func (s State) Verdict() Verdict { return meanings[s].verdict }

// Effects is a set of them.
type Effects uint32

// SetOf is the set of these effects.
func SetOf(es ...Effect) (out Effects) {
	for _, e := range es {
		out |= 1 << e
	}
	return out
}

// Has reports whether the effect is one of them.
func (e Effects) Has(one Effect) bool { return e>>one&1 > 0 }

// With adds an effect if it holds.
func (e Effects) With(one Effect, is bool) Effects {
	if is {
		return e | 1<<one
	}
	return e
}
