package contents

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// illSecond is one second. Pods that are made on the node do not come up.
func (w *world) illSecond(ill string) {
	w.tick(time.Second)
	w.rounds(func(c *action.CreatePod) bool {
		if c.Node == ill {
			w.createStarting(c, func(p *fact.Pod) { p.Trouble, p.Certain = "its disk is ill", true })
		}
		return c.Node == ill
	})
}

// startBlind has a controller begin that knows nothing and cannot read policies; so much later it can.
func (w *world) startBlind(later time.Duration) {
	w.blind = true
	w.start(true)
	w.pass(later)
	w.blind = false
	w.tellPolicy()
	w.settle()
}

// A node's daemon was not available before its change, and is not since: its own fault, also for a controller that starts
// while no policy can be read for a moment.
func TestWhatWasBrokenBeforeIsNoEvidenceAfterAStartWithoutSight(t *testing.T) {
	for _, text := range []string{plain, careful} {
		for _, how := range []string{"no restart", "restart", "restart without sight"} {
			const ill = "n1" // the canary
			w := newWorld(t, text)
			w.pass(10 * time.Minute)
			p := w.pods[ill]
			p.Ready, p.ReadySince, p.Trouble = false, time.Time{}, "its disk is ill"
			w.pods[ill] = p
			w.book.Step(p)
			w.settle()
			w.set = w.set.DeepCopy()
			w.set.Generation++
			w.book.Tell(DaemonSet{Object: w.set})
			w.tellSet()
			for range 60 {
				w.illSecond(ill)
			}
			if v, why, _ := w.matrix.Verdict("ds", ill); content.TemplateOf(w.pods[ill].Revision) != "t2" || v != "NodeFault" {
				t.Fatalf("%s has %s, and is %s: %s", ill, w.pods[ill].Revision, v, why)
			}
			switch how {
			case "restart":
				w.start(true)
			case "restart without sight":
				w.startBlind(time.Second)
			}
			for range 60 {
				w.illSecond(ill)
			}
			if s := w.status(); len(s.FailedRevisions) > 0 {
				t.Errorf("content is followed: %t, %s: the one node that fails had a broken daemon before its change; %s: %s",
					text == careful, how, s.Phase, s.Message)
			}
		}
	}
}

// What the status names was never there to be given, and is not what the objects hold by now. A controller that starts
// while no policy can be read gives it to nobody later.
func TestContentThatWasNeverMadeIsNotGivenAfterAStartWithoutSight(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(10 * time.Minute)
	w.refuse = func(*Job) string { return "no room" }
	w.write("a")
	w.pass(time.Minute)
	w.wantPhase(paused, "no room")
	w.blind = true
	w.start(true)
	w.write("b")
	w.blind = false
	w.tellPolicy()
	w.settle()
	w.pass(time.Minute)
	w.wantRuns(map[string]int{"good": 5})
	w.refuse = nil
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{"b": 5})
}

// A controller starts while neither policies nor rollouts can be read, and the objects hold something else by now. A pod
// that is lost comes back with the content that the others have, also where the template is another one too.
func TestContentOutlivesAStartWithoutSight(t *testing.T) {
	for _, edited := range []bool{false, true} {
		w := newWorld(t, careful)
		w.pass(10 * time.Minute)
		w.wantRuns(map[string]int{"good": 5})
		if edited {
			w.set = w.set.DeepCopy()
			w.set.Generation++
		}
		w.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "conf"}, Data: map[string]string{"agent.conf": "other"}})
		delete(w.pods, "n4")
		w.unread = true
		w.start(true)
		w.pass(10 * time.Minute)
		w.wantRuns(map[string]int{"good": 5})
		w.unread = false // and what was guessed is forgotten
		w.book.Step(fact.RolloutGone(w.set.UID))
		w.tellPolicy()
		w.settle()
		w.wantRuns(map[string]int{"good": 5})
		w.pass(time.Hour)
		w.wantRuns(map[string]int{"other": 5})
	}
}
