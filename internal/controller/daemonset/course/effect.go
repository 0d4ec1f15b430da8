package course

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
	// maxUnavailable.
	Ours
	// Fault: it is out of order, or its daemon was before. Sick: the node itself is; it counts
	// against the limit of such nodes.
	Fault
	Sick
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

	effectCount
)

// meaning is a row of the table: what a state is called, and what it counts as, always, on the
// way to the target, and while the node's daemon is unavailable by our doing.
type meaning struct {
	verdict               Verdict
	always, forward, ours effects
}

// meanings is the table. On the way back only nodes that are being changed use up the limit:
// what the target has broken must not keep others with it. A pod that does not end still runs for
// all we know; so many nodes of that kind as nodeFaults allows do not stop a change.
var meanings = [stateCount]meaning{
	Outside:   {verdict: NotSelected},
	LeftOut:   {verdict: NotSelected, always: the(Selected, Done)},
	Untouched: {verdict: Waiting, always: the(Selected)},
	Broken:    {verdict: NodeFault, always: the(Selected, Fault), ours: the(Ours)},
	Unmoved:   {verdict: Waiting, always: the(Selected, Passed), ours: the(Ours)},
	Taken:     {verdict: Changing, always: the(Selected, Ours)},
	Absent:    {verdict: Changing, always: the(Selected, Ours)},
	Unbound:   {verdict: Changing, always: the(Selected, Ours)},
	Starting:  {verdict: Changing, always: the(Selected, Ours)},
	Soaking:   {verdict: Current, always: the(Selected, Soaks)},
	Soaked:    {verdict: Current, always: the(Selected, Done)},
	Leaving:   {verdict: Changing, always: the(Selected, Ours)},
	Failed:    {verdict: FailedRevision, always: the(Selected, Passed), forward: the(Ours), ours: the(Ours)},
	Kept:      {verdict: FailedRevision, always: the(Selected, Passed), ours: the(Ours)},
	Stuck:     {verdict: NodeFault, always: the(Selected, Fault, Excused), ours: the(Ours)},
	Crowded:   {verdict: NoRoom, always: the(Selected, Fault, Excused, Sick), ours: the(Ours)},
	Faulty:    {verdict: NodeFault, always: the(Selected, Fault, Excused), ours: the(Ours)},
	Lingering: {verdict: NodeFault, always: the(Selected, Fault, Excused, Sick)},
	Flapping:  {verdict: NodeFault, always: the(Selected, Fault, Excused, Sick)},
}

// counts is what a node in a state counts as, by whose doing it is unavailable.
func (s State) counts(by Cause, back bool) effects {
	m := &meanings[s]
	e := m.always
	if !back {
		e |= m.forward
	}
	switch by {
	case Us:
		e |= m.ours
	case UnderWay:
		e = e.with(Ours, s != Outside)
	}
	return e
}

// Verdict is what people are told of a node in the state.
func (s State) Verdict() Verdict { return meanings[s].verdict }
