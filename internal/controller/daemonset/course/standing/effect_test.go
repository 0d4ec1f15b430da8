package standing

import (
	"testing"
)

// What each state counts as, by whose doing its daemon is unavailable, on the way to the target and
// back. Every row of the table stands here once more, in words.
func TestWhatStatesCountAs(t *testing.T) {
	type row struct {
		verdict Verdict
		counts  Effects // beside Selected
		// ours: whether it uses up the limit: by nobody's doing forward and back, by ours forward
		// and back.
		ours [4]bool
	}
	const x = true
	rows := map[State]row{
		Outside:    {NotSelected, 0, [4]bool{}},
		LeftOut:    {NotSelected, SetOf(Done), [4]bool{}},
		Untouched:  {Waiting, 0, [4]bool{}},
		Broken:     {NodeFault, SetOf(Fault), [4]bool{false, false, x, x}},
		Roomless:   {NoRoom, SetOf(Fault), [4]bool{false, false, x, x}},
		Unmoved:    {Waiting, SetOf(Passed), [4]bool{false, false, x, x}},
		Awaiting:   {Waiting, 0, [4]bool{false, false, x, x}},
		Unfetched:  {NoRoom, SetOf(Fault, Excused, Sick), [4]bool{false, false, x, x}},
		Taken:      {Changing, 0, [4]bool{x, x, x, x}},
		Absent:     {Changing, 0, [4]bool{x, x, x, x}},
		Unbound:    {Changing, 0, [4]bool{x, x, x, x}},
		Starting:   {Changing, 0, [4]bool{x, x, x, x}},
		Leaving:    {Changing, 0, [4]bool{x, x, x, x}},
		Soaking:    {Current, SetOf(Soaks), [4]bool{}},
		Soaked:     {Current, SetOf(Done), [4]bool{}},
		Failed:     {FailedRevision, SetOf(Passed), [4]bool{x, false, x, x}},
		Kept:       {FailedRevision, SetOf(Passed), [4]bool{false, false, x, x}},
		Stuck:      {NodeFault, SetOf(Fault, Excused), [4]bool{false, false, x, x}},
		Crowded:    {NoRoom, SetOf(Fault, Excused, Sick), [4]bool{false, false, x, x}},
		Faulty:     {NodeFault, SetOf(Fault, Excused), [4]bool{false, false, x, x}},
		Maintained: {InMaintenance, SetOf(Away, Excused), [4]bool{false, false, x, x}},
		Lingering:  {NodeFault, SetOf(Fault, Excused, Sick), [4]bool{}},
		Flapping:   {NodeFault, SetOf(Fault, Excused, Sick), [4]bool{}},
	}
	if len(rows) != int(stateCount) {
		t.Errorf("%d of %d states are here", len(rows), stateCount)
	}
	for s, want := range rows {
		for i, ours := range want.ours {
			by, back := Cause(i/2), i%2 == 1
			counts := want.counts.With(Selected, s != Outside).With(Ours, ours)
			if got := s.Counts(by, back); got != counts || s.Verdict() != want.verdict {
				t.Errorf("state %d, cause %d, back %v: %s counts as %b, want %s and %b", s, by, back, s.Verdict(), got,
					want.verdict, counts)
			}
		}
		if got := s.Counts(UnderWay, true); got.Has(Ours) != (s != Outside) {
			t.Errorf("state %d, under way: it uses up the limit: %v", s, got.Has(Ours))
		}
	}
}
