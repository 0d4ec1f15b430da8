package standing

import (
	"testing"
	"time"
)

// What is said of a node, for each state and each reason that there may be for it.
func TestWhy(t *testing.T) {
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	at := now.Add(time.Minute)
	const tried = ", and it is tried again: the DaemonSet's events say why"
	asked := "the API has not answered yet what became of its pod"
	for _, c := range []struct {
		s    State
		by   Cause
		in   Input
		d    Daemon
		want string
	}{
		{Outside, Nobody, Input{}, Daemon{}, ""},
		{Untouched, Nobody, Input{}, Daemon{}, ""},
		{Untouched, Nobody, Input{}, Daemon{Refused: "no"}, "no; it is tried again"},
		{Untouched, UnderWay, Input{}, Daemon{}, "its change has begun, and does not show yet"},
		{Untouched, UnderWay, Input{}, Daemon{Unsure: true}, asked},
		{Untouched, Us, Input{}, Daemon{}, "a change took its daemon, and the next one comes when its step begins"},
		{Untouched, Nobody, Input{}, Daemon{Two: true}, ""},
		{Untouched, UnderWay, Input{}, Daemon{Two: true, Since: now}, "its old pod is still there"},
		{Untouched, UnderWay, Input{}, Daemon{Two: true, Since: now, EndsBy: at}, "its old pod is to end by 10:01:00 UTC"},
		{Untouched, UnderWay, Input{Unmoved: at}, Daemon{Two: true, Since: now}, "its old pod may not be deleted" + tried},
		{Untouched, UnderWay, Input{}, Daemon{Two: true, NoRoom: "cpu short"}, "its second pod is not available: cpu short"},
		{Untouched, UnderWay, Input{}, Daemon{Two: true, Trouble: "it crashes"}, "its second pod is not available: it crashes"},
		{Untouched, UnderWay, Input{}, Daemon{Two: true, Bound: now}, "its second pod is not available: it starts"},
		{Untouched, UnderWay, Input{}, Daemon{Two: true}, "its second pod is not available: its pod is not bound to it yet"},
		{LeftOut, Nobody, Input{Want: "v2"}, Daemon{}, "revision v2 leaves it out"},
		{LeftOut, UnderWay, Input{Want: "v2"}, Daemon{Unsure: true}, "revision v2 leaves it out; " + asked},
		{Broken, Nobody, Input{}, Daemon{Revision: "v1"}, "its daemon was not available before: its pod is not ready"},
		{Broken, Us, Input{}, Daemon{Revision: "v1", Trouble: "it crashes"}, "its daemon is not available: it crashes"},
		{Broken, Us, Input{Want: "v1", Lost: true}, Daemon{},
			"it has no daemon, and none can be made: revision v1 is gone or cannot be read"},
		{Roomless, Us, Input{Want: "v1"}, Daemon{NoRoom: "cpu short"},
			"no room for its pod of revision v1, which it is to have until its step begins: cpu short"},
		{Unmoved, Us, Input{}, Daemon{}, "each try to replace its pod fails" + tried},
		{Unmoved, Us, Input{}, Daemon{Refused: "denied"}, "denied"},
		{Taken, UnderWay, Input{}, Daemon{Revision: "v1"}, "its pod of revision v1 is being replaced"},
		{Absent, Us, Input{}, Daemon{}, "it gets a pod"},
		{Absent, Us, Input{}, Daemon{Refused: "denied", Trouble: "old"}, "denied"},
		{Absent, Us, Input{}, Daemon{Trouble: "its old pod has not ended yet"}, "its old pod has not ended yet"},
		{Unbound, Us, Input{}, Daemon{Gates: "g"}, "its pod waits behind a scheduling gate: g"},
		{Starting, UnderWay, Input{}, Daemon{}, "its daemon starts"},
		{Soaking, Nobody, Input{Soaked: at}, Daemon{Since: now}, "soaks until 10:01:00 UTC"},
		{Soaking, UnderWay, Input{Soaked: at}, Daemon{Since: now, Two: true},
			"soaks until 10:01:00 UTC; its old pod is still there"},
		{Soaked, Nobody, Input{}, Daemon{Since: now}, ""},
		{Soaked, UnderWay, Input{Unmoved: at}, Daemon{Since: now, Two: true}, "its old pod may not be deleted" + tried},
		{Flapping, UnderWay, Input{}, Daemon{Since: now, Two: true, EndsBy: at},
			"its pod keeps losing its readiness, for longer than the soak may take; its old pod is to end by 10:01:00 UTC"},
		{Leaving, UnderWay, Input{}, Daemon{}, "its pod is taken away"},
		{Failed, Us, Input{}, Daemon{}, "the revision fails there"},
		{Failed, Us, Input{Fault: "the node does not answer"}, Daemon{}, "the node does not answer"},
		{Failed, Us, Input{}, Daemon{Trouble: "container main: image a:1 cannot be pulled"}, "container main: image a:1 cannot be pulled"},
		{Kept, UnderWay, Input{}, Daemon{Refused: "denied"}, "denied"},
		{Kept, UnderWay, Input{}, Daemon{}, "the revision fails there, and it keeps what it has"},
		{Stuck, Us, Input{}, Daemon{Refused: "denied"}, "denied"},
		{Stuck, Us, Input{}, Daemon{}, "its daemon does not become available"},
		{Crowded, Us, Input{}, Daemon{NoRoom: "cpu short"}, "cpu short"},
		{Faulty, Us, Input{Fault: "it does not answer"}, Daemon{}, "it does not answer"},
		{Maintained, Us, Input{Fault: "in maintenance: Drained", Maintained: true}, Daemon{Trouble: "it crashes"}, "in maintenance: Drained"},
		{Lingering, Us, Input{}, Daemon{EndsBy: at}, "its old pod was to end by 10:01:00 UTC, and is still there"},
	} {
		c.in.Daemon = &c.d
		if got := c.in.Why(c.s, c.by); got != c.want {
			t.Errorf("state %d, cause %d, %+v: %q, want %q", c.s, c.by, c.d, got, c.want)
		}
	}
}

// Whatever uses up the limit and is not being changed says what it waits for.
func TestWhoUsesUpTheLimitSaysWhy(t *testing.T) {
	for s := range stateCount {
		for by := range causeCount {
			for _, d := range []Daemon{{}, {Unsure: true}, {Two: true}, {Revision: "v1"}, {Revision: "v1", Two: true}} {
				d.NoRoom, d.EndsBy = "cpu short", time.Time{}
				in := Input{Daemon: &d, Fault: "it does not answer", Want: "v1"}
				if s == Awaiting || s == Unfetched {
					continue // what is said of images comes from elsewhere
				}
				if s.Counts(by, false).Has(Ours) && in.Why(s, by) == "" {
					t.Errorf("state %d, cause %d, %+v says nothing", s, by, d)
				}
			}
		}
	}
}
