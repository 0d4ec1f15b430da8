package course

import (
	"slices"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A process that dies in the moment in which it has daemons taken away leaves behind what
// they were like: the verdicts are those that it would have given.
func TestWhatADaemonWasLikeIsStoredBeforeItGoes(t *testing.T) {
	const one = "z0-r0-00"
	for name, test := range map[string]struct {
		before, after func(d *Daemon)
		phase         v1alpha1.Phase
		words         string
	}{
		"refused": {
			func(*Daemon) {}, func(d *Daemon) { *d = Daemon{Refused: "the API refuses its pod: quota", Held: true} },
			v1alpha1.PhaseHalted, "the API refuses its pod: quota",
		},
		"no room, and had one": {
			func(*Daemon) {}, func(d *Daemon) { d.Bound, d.NoRoom = time.Time{}, "cpu short" },
			v1alpha1.PhaseHalted, "there is no room for it: cpu short",
		},
		"broken before": {
			func(d *Daemon) { d.Available, d.Since = false, time.Time{} },
			func(d *Daemon) { d.Restarts, d.Trouble = 5, "no such device" },
			v1alpha1.PhaseProgressing, "step rest: 0 of 10 nodes done",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.addFleet(1, 1, 10, "v1")
			test.before(&w.nodes[one].daemon)
			w.tell(one)
			w.start(policy(t, "failure: {max: 0}"), daemonSet("v1"))
			w.update("v2")
			if p := w.take(1); len(p) != 1 || p[0].Node != one {
				t.Fatalf("%+v", p)
			}
			w.nodes[one].daemon = Daemon{}
			w.crash() // nobody has seen that the daemon is gone
			w.create(one)
			test.after(&w.nodes[one].daemon)
			w.tell(one)
			w.expect(t, test.phase, test.words)
		})
	}
}

// A process that starts after what a daemon is like was stored, and before it was taken
// away, takes it away at once; or stores it anew, if the daemon is another by then.
func TestWhatIsStoredIsOfTheDaemonThatGoes(t *testing.T) {
	const one = "z0-r0-00"
	for name, breaks := range map[string]bool{"as it was": false, "broken since": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.addFleet(1, 1, 4, "v1")
			w.start(policy(t, "failure: {max: 0}"), daemonSet("v1"))
			w.update("v2")
			if p := w.course.Take(1); len(p) != 0 || w.course.Reserved() != 1 {
				t.Fatalf("%+v may go before it is stored what was there; %d are reserved", p, w.course.Reserved())
			}
			w.store()
			if m := w.nodes[one]; breaks {
				m.daemon.Available, m.daemon.Since = false, time.Time{}
			}
			w.crash()
			if p := w.course.Take(1); (len(p) == 1) == breaks {
				t.Fatalf("permits are %+v", p)
			}
			w.take(1)
			w.nodes[one].daemon = Daemon{}
			w.tell(one)
			s := w.course.Status().Replacing
			if s == nil || slices.Contains(s.Available, one) == breaks || slices.Contains(s.Unavailable, one) != breaks {
				t.Errorf("the status names %+v", s)
			}
		})
	}
}

// A daemon may heal or break while its turn is stored. What counts is what it was like last.
func TestWhatADaemonIsLikeWhileItsTurnIsStored(t *testing.T) {
	const one = "z0-r0-00"
	for name, test := range map[string]struct {
		becomes []func(d *Daemon)
		want    Before
	}{
		"it heals":              {[]func(*Daemon){well}, WasAvailable},
		"it heals, and breaks":  {[]func(*Daemon){well, broken}, WasNotAvailable},
		"it heals, and ends":    {[]func(*Daemon){well, func(d *Daemon) { *d = Daemon{Ended: true, Ending: "v1"} }}, WasNotAvailable},
		"it heals, and is gone": {[]func(*Daemon){well, func(d *Daemon) { *d = Daemon{} }}, WasAvailable},
		"it is gone":            {[]func(*Daemon){func(d *Daemon) { *d = Daemon{} }}, WasNotAvailable},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.addFleet(1, 1, 4, "v1")
			broken(&w.nodes[one].daemon)
			w.tell(one)
			w.start(policy(t, "failure: {max: 0}"), daemonSet("v1"))
			w.update("v2")
			if w.course.Take(1); w.course.Reserved() != 1 {
				t.Fatalf("%d are reserved", w.course.Reserved())
			}
			for _, become := range test.becomes {
				become(&w.nodes[one].daemon)
				w.tell(one)
			}
			w.take(1)
			if got := w.course.Before(one); got != test.want {
				t.Errorf("the next one is told that it was %q, want %q", got, test.want)
			}
		})
	}
}

// While the policy cannot be followed, and there is no revision to go back to, a node whose
// daemon was taken away gets none. Whoever starts then does not forget what it was like.
func TestWhatADaemonWasLikeOutlivesALostPolicy(t *testing.T) {
	const one = "z0-r0-00"
	w := newWorld()
	w.addFleet(1, 1, 4, "")
	w.start(policy(t, "failure: {max: 0}"), daemonSet("v1"))
	w.create(one)
	well(&w.nodes[one].daemon)
	w.tell(one)
	w.update("v2") // the others have none yet: no revision is stable
	for _, p := range w.take(4) {
		w.create(p.Node)
		well(&w.nodes[p.Node].daemon)
		w.tell(p.Node)
	}
	if p := w.take(1); len(p) != 1 || p[0].From != "v1" || w.course.Status().StableRevision != "" {
		t.Fatalf("%+v", p)
	}
	w.nodes[one].daemon = Daemon{}
	p := w.course.policy
	w.againFrom(w.stored, nil, Lost, "for a test")
	w.store()
	w.againFrom(w.stored, p, Followed, "")
	if got := w.course.Before(one); got != WasAvailable {
		t.Errorf("the next one is told that it was %q, want %q", got, WasAvailable)
	}
}

func well(d *Daemon) { d.Available, d.Since = true, d.Made }

func broken(d *Daemon) { d.Available, d.Since = false, time.Time{} }

// Between the reservation and the permit nothing is sure: whatever forbids the change by
// then ends the reservation, and the node counts for nothing any more.
func TestReservationIsNoPermit(t *testing.T) {
	const one, other = "z0-r0-00", "z0-r0-01"
	for name, test := range map[string]struct {
		happens func(w *world)
		again   func(w *world)
	}{
		"somebody pauses it": {
			func(w *world) { w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true}) },
			func(w *world) { w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{}) },
		},
		"the policy is lost": {
			func(w *world) { w.course.SetPolicy(nil, Lost, "for a test") },
			func(w *world) { w.course.SetPolicy(nil, Followed, "") },
		},
		"its rack loses another": {
			func(w *world) { w.fault(other, "the node does not answer", true) },
			func(w *world) { w.starts = 0; w.fault(other, "", false); w.pass(2 * time.Second) },
		},
		"the template goes back": {
			func(w *world) { w.update("v1") },
			func(w *world) { w.update("v2") },
		},
		"somebody aborts it": {
			func(w *world) { w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Target: v1alpha1.TargetStable}) },
			func(w *world) {
				w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Retry: &v1alpha1.Retry{Revision: "v2", Count: 1}})
			},
		},
	} {
		for _, stored := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := newWorld()
				w.addFleet(1, 1, 4, "v1")
				w.start(policy(t, "domains: [{key: rack, maxUnavailable: 1}]"), daemonSet("v1"))
				w.update("v2")
				if w.course.Take(1); w.course.Reserved() != 1 {
					t.Fatal("nothing is reserved")
				}
				if stored {
					w.store()
				}
				test.happens(w)
				for range 3 {
					if p := w.course.Take(4); len(p) > 0 {
						t.Fatalf("%+v may begin", p)
					}
					w.store()
				}
				if n := w.course.Reserved(); n > 0 || w.course.nodes[one].view.busy {
					t.Errorf("%d stay reserved; %s is %+v", n, one, w.course.nodes[one].view)
				}
				test.again(w)
				if w.pass(time.Minute); w.on("v2") != 4 {
					t.Errorf("in the end %d nodes have v2", w.on("v2"))
				}
			})
		}
	}
}

// A write of a status whose answer is lost may be done or not: what it would have taken
// out of the API is not known to be there.
func TestWhatMayBeOverwrittenIsNotStored(t *testing.T) {
	const one = "z0-r0-00"
	w := newWorld()
	w.addFleet(1, 1, 4, "v1")
	w.start(policy(t, "{}"), daemonSet("v1"))
	w.update("v2")
	w.course.Take(1)
	w.store()
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
	w.course.Take(1)
	w.course.Store(w.course.Status().Replacing) // is written, and nobody knows what came of it
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{})
	if p := w.course.Take(1); len(p) != 0 || w.course.Reserved() != 1 {
		t.Errorf("%+v may begin though the API may not hold what %s was like", p, one)
	}
}

// More nodes than the status can name go one after another, and none is forgotten that no
// pod speaks of.
func TestMoreNodesThanTheStatusNames(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 600, "v1")
	w.start(policy(t, "waves: [{name: all, percent: 100, maxUnavailable: 100%}]"), daemonSet("v1"))
	w.update("v2")
	if w.course.Take(600); w.course.Reserved() != keptNames {
		t.Fatalf("%d are reserved, %d can be named", w.course.Reserved(), keptNames)
	}
	for _, p := range w.take(600) {
		w.nodes[p.Node].daemon = Daemon{Ended: true, Ending: "v1", EndsBy: w.now.Add(30 * time.Second), Was: WasAvailable}
		w.tell(p.Node)
	}
	if w.on("v1") > 0 {
		t.Fatalf("%d nodes have not begun", w.on("v1"))
	}
	if w.store(); w.course.Owes() {
		t.Error("statuses are written as fast as may be, though no pod waits for it")
	}
	const gone = "z0-r0-599"
	w.nodes[gone].daemon = Daemon{}
	w.tell(gone)
	if s := w.course.Status().Replacing; len(s.Available) != keptNames || !slices.Contains(s.Available, gone) {
		t.Errorf("%d are named, among them %s: %v", len(s.Available), gone, slices.Contains(s.Available, gone))
	}
	w.store()
	w.crash()
	for name, n := range w.course.nodes {
		if n.before != WasAvailable {
			t.Fatalf("after a restart nobody knows what %s was like: %q", name, n.before)
		}
	}
}
