package course

import "testing"

// What each state counts as, by whose doing its daemon is unavailable, on the way to the target and
// back. Every row of the table stands here once more, in words.
func TestWhatStatesCountAs(t *testing.T) {
	type row struct {
		verdict Verdict
		counts  effects // beside Selected
		// ours: whether it uses up the limit: by nobody's doing forward and back, by ours forward
		// and back.
		ours [4]bool
	}
	const x = true
	for s, want := range map[State]row{
		Outside:   {NotSelected, 0, [4]bool{}},
		LeftOut:   {NotSelected, the(Done), [4]bool{}},
		Untouched: {Waiting, 0, [4]bool{}},
		Broken:    {NodeFault, the(Fault), [4]bool{false, false, x, x}},
		Unmoved:   {Waiting, the(Passed), [4]bool{false, false, x, x}},
		Taken:     {Changing, 0, [4]bool{x, x, x, x}},
		Absent:    {Changing, 0, [4]bool{x, x, x, x}},
		Unbound:   {Changing, 0, [4]bool{x, x, x, x}},
		Starting:  {Changing, 0, [4]bool{x, x, x, x}},
		Leaving:   {Changing, 0, [4]bool{x, x, x, x}},
		Soaking:   {Current, the(Soaks), [4]bool{}},
		Soaked:    {Current, the(Done), [4]bool{}},
		Failed:    {FailedRevision, the(Passed), [4]bool{x, false, x, x}},
		Kept:      {FailedRevision, the(Passed), [4]bool{false, false, x, x}},
		Stuck:     {NodeFault, the(Fault, Excused), [4]bool{false, false, x, x}},
		Crowded:   {NoRoom, the(Fault, Excused, Sick), [4]bool{false, false, x, x}},
		Faulty:    {NodeFault, the(Fault, Excused), [4]bool{false, false, x, x}},
		Lingering: {NodeFault, the(Fault, Excused, Sick), [4]bool{}},
		Flapping:  {NodeFault, the(Fault, Excused, Sick), [4]bool{}},
	} {
		for i, ours := range want.ours {
			by, back := Cause(i/2), i%2 == 1
			counts := want.counts.with(Selected, s != Outside).with(Ours, ours)
			if got := s.counts(by, back); got != counts || s.Verdict() != want.verdict {
				t.Errorf("state %d, cause %d, back %v: %s counts as %b, want %s and %b", s, by, back, s.Verdict(), got, want.verdict, counts)
			}
		}
		if got := s.counts(UnderWay, true); got.has(Ours) != (s != Outside) {
			t.Errorf("state %d, under way: it uses up the limit: %v", s, got.has(Ours))
		}
	}
}
