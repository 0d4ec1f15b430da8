package failures

import (
	"fmt"
	"testing"

	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// More failures than names are kept of only grow in number, also over a status. As many as that heal.
func TestMoreThanIsKeptOnlyGrows(t *testing.T) {
	for failed, want := range map[int]int{Kept: 0, Kept + 1: Kept + 1} {
		var f, next Failures
		for i := range failed {
			f.Blame(fmt.Sprintf("n%03d", i), Failure{Reason: standing.BecauseLate, Why: "late"})
		}
		next.Recall(f.Status("v2"))
		if next.Count() != failed || len(f.Status("v2").Nodes) != Kept {
			t.Errorf("%d failed; after a restart %d have, and %d are named", failed, next.Count(), len(f.Status("v2").Nodes))
		}
		for i := range failed {
			f.Acquit(fmt.Sprintf("n%03d", i))
		}
		if f.Count() != want {
			t.Errorf("%d failed and healed: %d count, want %d", failed, f.Count(), want)
		}
	}
}

// What is said follows from what is known, and unknown reasons are counted as such.
func TestWhatIsSaid(t *testing.T) {
	var f Failures
	f.Blame("b", Failure{Reason: standing.BecauseLate, Why: "not in time"})
	if got := f.Words(); got != "1 node (b)" {
		t.Errorf("it fails on %s", got)
	}
	for _, n := range []string{"d", "c", "a"} {
		f.Blame(n, Failure{})
	}
	if got := f.Words(); got != "4 nodes (a, b, c)" {
		t.Errorf("it fails on %s", got)
	}
	if got := f.Evidence(9); got != "failed on 4 of 9 nodes: b: not in time" {
		t.Error(got)
	}
	if r := f.Reasons(); r[standing.BecauseUnknown] != 3 || r[standing.BecauseLate] != 1 {
		t.Errorf("the reasons are %v", r)
	}
	if f.Acquit("b"); f.Has("b") || f.Words() != "3 nodes (a, c, d)" || f.Evidence(0) != "failed on 3 of 3 nodes" {
		t.Errorf("without b it fails on %s, %s", f.Words(), f.Evidence(0))
	}
}
