package course

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// The stable revision does not start any more, and controllers start anew while nodes go back to it. Together they take
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
			w.pass(20 * time.Minute)
			w.update("v1")
		},
		"undo, then another while no controller runs": func(w *world) {
			w.update("v1")
			w.pass(20 * time.Minute)
			w.ds.Newest = "v3"
		},
	} {
		for _, refused := range []bool{false, true} {
			w := newWorld()
			w.addFleet(1, 1, 1000, "v1")
			ds := daemonSet("v1")
			ds.MaxUnavailable = rolloutpolicy.LimitOf(intstr.FromString("30%"))
			w.start(policy(t, "waves: [{name: canary, count: 1}, {name: all, percent: 100, soak: 24h}]"), ds)
			w.update("v2")
			w.pass(time.Minute)
			w.bad = func(revision, _ string) string { return map[string]string{"v1": "its image is gone"}[revision] }
			if refused {
				w.refuses = "v1"
			}
			goBack(w)
			w.pass(20 * time.Minute)
			if n := w.working(); n != 700 {
				t.Errorf("%s, refused %t: %d of 1000 work, and 300 may be unavailable", name, refused, n)
			}
			for range 3 {
				w.crash()
				w.pass(20 * time.Minute)
			}
			if n := w.working(); n < 700 {
				t.Errorf("%s, refused %t: after restarts %d of 1000 work, and 300 may be unavailable", name, refused, n)
			}
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
		if m := w.nodes[name]; m.daemon.Before == WasAvailable {
			m.daemon.Available, m.daemon.Since, m.daemon.Trouble = false, time.Time{}, "it crashes"
			w.tell(name)
		}
	}
	w.crash()
	w.pass(time.Hour)
	if n := w.course.totals[Ours]; n != 0 {
		t.Errorf("%d daemons that broke by themselves count as taken", n)
	}
}
