package course

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
)

// The stable revision does not start any more, and controllers start again while nodes go back to it. Together they take
// no more working daemons than one of them may, though the status does not name all.
func TestAWayBackToWhatDoesNotStartTakesNoMoreAfterRestarts(t *testing.T) {
	abort := func(w *world) {
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
	}
	for name, goBack := range map[string]func(w *world){
		"undo":  func(w *world) { w.update("v1") },
		"abort": abort,
		"abort, then undo": func(w *world) {
			abort(w)
			w.passIn(10*time.Second, 20*time.Minute)
			w.update("v1")
		},
		"undo, then another while no controller runs": func(w *world) {
			w.update("v1")
			w.passIn(10*time.Second, 20*time.Minute)
			w.ds.Newest = "v3"
		},
	} {
		for _, how := range []string{"", "its pods are refused", "the clock that wrote the status was ahead"} {
			w := newWorld()
			w.addFleet(1, 1, 1000, "v1")
			ds := daemonSet("v1")
			ds.MaxUnavailable = rolloutpolicy.LimitOf(intstr.FromString("30%"))
			w.start(policy(t, "waves: [{name: canary, count: 1}, {name: all, percent: 100, soak: 24h}]"), ds)
			w.update("v2")
			w.pass(time.Minute)
			w.bad = func(revision, _ string) string { return map[string]string{"v1": "its image is gone"}[revision] }
			if how == "its pods are refused" {
				w.refuses = "v1"
			}
			goBack(w)
			w.passIn(10*time.Second, 20*time.Minute)
			if n := w.working(); n != 700 {
				t.Errorf("%s, %s: %d of 1000 work, and 300 may be unavailable", name, how, n)
			}
			for range 3 {
				if how == "the clock that wrote the status was ahead" {
					w.storedAhead(24 * time.Hour)
				}
				w.crash()
				w.passIn(10*time.Second, 20*time.Minute)
			}
			if n := w.working(); n < 700 {
				t.Errorf("%s, %s: after restarts %d of 1000 work, and 300 may be unavailable", name, how, n)
			}
		}
	}
}

// What a change took before its nodes went back, and what does not come up there either, uses up the limit of the next
// change, also for controllers that start at any of these moments.
func TestWhatWasTakenBeforeAWayBackCountsAfterARestart(t *testing.T) {
	for _, moments := range []string{"", "back", "next", "set", "back, next, set", "unseen"} {
		w := newWorld()
		w.addFleet(1, 1, 10, "v1")
		ds := daemonSet("v1")
		ds.MaxUnavailable = rolloutpolicy.LimitOf(intstr.FromInt32(2))
		w.start(policy(t, "waves: [{name: all, percent: 100, soak: 24h}]\nfailure: {max: 100%}"), ds)
		w.bad = func(string, string) string { return "its image is gone" }
		at := func(moment string) {
			if strings.Contains(moments, moment) {
				w.crash()
			}
		}
		w.update("v2")
		w.passIn(10*time.Second, 10*time.Minute)
		w.update("v1")
		w.passIn(10*time.Second, 10*time.Minute)
		at("back")
		w.passIn(10*time.Second, 10*time.Minute)
		if r := w.course.Status().Replacing; w.working() != 8 || r == nil || len(r.Earlier) != 2 {
			t.Errorf("restarts: %q: on the way back %d of 10 work, want 8; the status says %+v", moments, w.working(), r)
		}
		at("next")
		if moments == "unseen" {
			w.ds.Newest = "v3"
			w.crash()
		} else {
			w.update("v3")
		}
		at("set")
		w.passIn(10*time.Second, time.Hour)
		if n := w.working(); n != 8 {
			t.Errorf("restarts: %q: %d of 10 work, and 2 may be unavailable", moments, n)
		}
	}
}

// Nodes of which a status says so use up no limit on the way back, and that of the next change unless they work by then.
// The fourth was taken once more, by the way back.
func TestNodesThatAnEarlierChangeTook(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 5, "v1")
	w.start(policy(t, "waves: [{name: all, percent: 100, soak: 24h}]"), daemonSet("v1"))
	names := w.names()
	for _, name := range names[:2] {
		w.nodes[name].daemon = standing.Daemon{}
		w.fault(name, "its disk is full", false)
	}
	w.nodes[names[3]].daemon = standing.Daemon{Revision: "v1", Made: w.now, Bound: w.now, Before: standing.WasAvailable}
	since := metav1.NewTime(w.now)
	stored := v1alpha1.Replacing{Available: names[:1], Earlier: names[:4], Since: &since}
	ours := func() int { return w.course.queue.Totals[standing.Ours] }
	is := func(when string, counted, named int) {
		t.Helper()
		if n := ours(); n != counted {
			t.Errorf("%s %d nodes count, want %d", when, n, counted)
		}
		if r := w.course.Status().Replacing; r == nil || !slices.Equal(r.Earlier, names[:named]) {
			t.Errorf("%s the status says %+v, want %v in it", when, r, names[:named])
		}
	}
	w.stored.Replacing = &stored
	w.crash()
	is("on the way back", 1, 2)
	third := &w.nodes[names[2]].daemon
	third.Available, third.Since, third.Trouble = false, time.Time{}, "it crashes"
	w.tell(names[2])
	w.update("v2")
	is("with the next change", 3, 0)

	third.Available, third.Since, third.Trouble = true, w.now, ""
	w.stored.Replacing, w.stored.TargetRevision, w.stored.StableRevision = &stored, "v1", "v1"
	w.crash()
	is("with a change that came while no controller ran", 3, 0)

	w.nodes[names[1]].daemon = standing.Daemon{Was: standing.WasAvailable}
	w.stored = v1alpha1.DaemonSetRolloutStatus{Replacing: &stored, TargetRevision: "v2", StableRevision: "v1",
		FailedRevisions: []v1alpha1.FailedRevision{{Revision: "v2", Action: rollback, Time: since}}}
	w.crash()
	is("on the way back from one that failed", 1, 2)
}

// storedAhead has the times of the stored status be those of a clock that was ahead.
func (w *world) storedAhead(by time.Duration) {
	s := &w.stored
	for i := range s.FailedRevisions {
		s.FailedRevisions[i].Time.Time = s.FailedRevisions[i].Time.Add(by)
	}
	times := []*metav1.Time{s.StepStarted, s.LastDeparture}
	if s.Failures != nil {
		times = append(times, s.Failures.Since)
	}
	if s.Replacing != nil {
		times = append(times, s.Replacing.Since)
	}
	for _, at := range times {
		if at != nil {
			at.Time = at.Add(by)
		}
	}
}

// Once all nodes have gone back, and work, a daemon that breaks by itself is not taken for one that was taken.
func TestAWayBackThatIsOverIsForgotten(t *testing.T) {
	w := newWorld()
	w.addFleet(1, 1, 10, "v1")
	w.start(policy(t, "waves: [{name: canary, count: 5, maxUnavailable: 5, soak: 24h}]"), daemonSet("v1"))
	w.update("v2")
	w.pass(time.Minute)
	w.update("v1")
	if r := w.course.Status().Replacing; r == nil || !r.Since.Time.Equal(w.now) {
		t.Errorf("on the way back the status says %+v", r)
	}
	w.pass(time.Minute)
	if r := w.course.Status().Replacing; r != nil {
		t.Errorf("after the way back the status says %+v", r)
	}
	for _, name := range w.names() {
		if m := w.nodes[name]; m.daemon.Before == standing.WasAvailable {
			m.daemon.Available, m.daemon.Since, m.daemon.Trouble = false, time.Time{}, "it crashes"
			w.tell(name)
		}
	}
	w.crash()
	w.pass(time.Hour)
	if n := w.course.queue.Totals[standing.Ours]; n != 0 {
		t.Errorf("%d daemons that broke by themselves count as taken", n)
	}
}

// A server whose clock is a day ahead writes when a step began, a daemon left and the evidence begins; the next one's
// clock is right. Nothing waits until it is that late.
func TestAStatusOfAClockThatWasAheadHoldsUpNothing(t *testing.T) {
	w := newWorld()
	w.addFleet(2, 1, 5, "v1")
	w.rules["v2"] = func(node string) bool { return node >= "z1" }
	w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {zone: z0}}, soak: 1m}]"), daemonSet("v1"))
	w.update("v2")
	w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "v2",
		Step: v1alpha1.AllSteps}})
	w.pass(30 * time.Second)
	w.storedAhead(24 * time.Hour)
	w.crash()
	w.pass(2 * time.Hour)
	if w.on("v2") != 5 {
		phase, message := w.course.Phase()
		t.Errorf("after two hours %d of 5 have v2, %s: %s", w.on("v2"), phase, message)
	}
	restore := func(since time.Time) time.Time {
		w = newWorld()
		w.addFleet(1, 1, 5, "v1")
		w.ds, w.policy = daemonSet("v2"), policy(t, "{}")
		at := metav1.NewTime(since)
		status := v1alpha1.DaemonSetRolloutStatus{StableRevision: "v1", TargetRevision: "v2",
			Failures: &v1alpha1.Failures{Revision: "v2", Since: &at}}
		w.againFrom(status, w.policy, Followed, "")
		return w.course.state.since
	}
	now := newWorld().now
	if since := restore(now.Add(time.Hour)); !since.Equal(now) {
		t.Errorf("it is %s, and the evidence begins at %s", now, since)
	}
	if since := now.Add(-time.Hour); !restore(since).Equal(since) {
		t.Errorf("a time that has passed is changed")
	}
}

// The template goes back to one that does not start, on to another, and back, and a controller starts again in
// between. What the first way back took is not taken once more, though the status does not name all.
func TestWhatAWayBackTookIsKnownAfterAnotherTemplate(t *testing.T) {
	abort := func(w *world) {
		w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Abort: &v1alpha1.Abort{Revision: "v2"}})
	}
	for name, goBack := range map[string]func(w *world){"undo": func(w *world) { w.update("v1") }, "abort": abort} {
		for _, refused := range []string{"", "v1"} {
			w := newWorld()
			w.addFleet(1, 1, 800, "v1")
			ds := daemonSet("v1")
			ds.MaxUnavailable = rolloutpolicy.LimitOf(intstr.FromString("30%"))
			w.start(policy(t, "waves: [{name: canary, count: 1}, {name: all, percent: 100, soak: 24h}]"), ds)
			w.update("v2")
			w.pass(20 * time.Second)
			w.bad = func(revision, _ string) string { return map[string]string{"v1": "its image is gone"}[revision] }
			w.refuses = refused
			goBack(w)
			w.pass(10 * time.Second)
			w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{Paused: true})
			w.update("v3")
			w.pass(time.Second)
			w.crash()
			w.pass(time.Second)
			w.course.SetSpec(v1alpha1.DaemonSetRolloutSpec{})
			w.update("v1")
			w.pass(10 * time.Minute)
			if n := w.working(); n != 560 {
				t.Errorf("%s, %s is refused: %d of 800 work, and 240 may be unavailable", name, refused, n)
			}
		}
	}
}
