package course

import (
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
