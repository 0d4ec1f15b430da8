package contents

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// soakingCanary is a policy with a canary that soaks.
func soakingCanary(p string) string {
	return strings.Replace(p, "count: 1}", "count: 1, soak: 10m}", 1)
}

// createStarting makes a pod that is not ready yet.
func (w *world) createStarting(c *action.CreatePod, change func(p *fact.Pod)) {
	w.version++
	p := fact.Pod{UID: types.UID(fmt.Sprint("pod", w.version)), Name: c.PodName, Owner: w.set.UID, Node: c.Node, Bound: true,
		Revision: c.Revision, Created: w.now, BoundAt: w.now, Before: c.Before}
	if change != nil {
		change(&p)
	}
	w.pods[c.Node] = p
	w.restarts++
	w.book.Step(p)
	w.matrix.Step(action.Answer{Action: c, Outcome: action.OK, Pod: p.UID})
}

// second is one second, in which a few rounds of work are done. A daemon starts for five seconds.
func (w *world) second() {
	w.tick(time.Second)
	for node, p := range w.pods {
		if !p.Ready && p.Trouble == "" && !w.now.Before(p.Created.Add(5*time.Second)) {
			p.Ready, p.ReadySince = true, w.now
			w.pods[node] = p
			w.book.Step(p)
		}
	}
	w.rounds(func(c *action.CreatePod) bool {
		w.createStarting(c, nil)
		return true
	})
}

// rounds are a few rounds of work. Which pods are made otherwise than in this world, create does and says.
func (w *world) rounds(create func(*action.CreatePod) bool) {
	for range 3 {
		w.follow()
		jobs, actions := w.work()
		for _, a := range actions {
			if c, is := a.(*action.CreatePod); !is || !create(c) {
				w.act(a)
			}
		}
		for _, j := range jobs {
			w.book.Tell(w.carryOut(j))
		}
	}
}

// Content is turned off while a change is under way from a revision that has some. Who gets that one after it, since the
// change goes back, its pod was lost or it joins, gets it once.
func TestContentThatIsTurnedOffInTheMiddleReplacesNoPodAgainAndAgain(t *testing.T) {
	for name, then := range map[string]func(w *world){
		"nothing":  func(*world) {},
		"an abort": (*world).abort,
		"pods are lost": func(w *world) {
			for _, n := range []string{"n0", "n1", "n2", "n3", "n4"} {
				w.book.Step(podGone(w, n))
			}
		},
		"a node joins": func(w *world) { w.matrix.Step(fact.Node{Name: "n9"}) },
		"a restart":    func(w *world) { w.start(true) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, soakingCanary(careful))
			w.pass(20 * time.Minute)
			w.wantPhase(complete, "5 of 5")
			w.edit() // t2 is as good as t1
			w.pass(time.Minute)
			w.wantPhase(v1alpha1.PhaseSoaking, "canary")
			w.policy = w.compile(soakingCanary(plain))
			w.tellPolicy()
			for range 60 {
				w.second()
			}
			deleted := map[string]int{}
			w.deletes = func(a *action.DeletePod) { deleted[a.Node]++ }
			then(w)
			for range 480 {
				w.second()
			}
			most, working := 0, 0
			for _, n := range deleted {
				most = max(most, n)
			}
			for _, p := range w.pods {
				working += map[bool]int{true: 1}[p.Ready]
			}
			if s := w.status(); most > 2 || working < len(w.pods)-1 {
				t.Errorf("in eight minutes pods were deleted %v times, and %d daemons work; %s: %s; stable is %s, target %s", deleted,
					working, s.Phase, s.Message, s.StableRevision, s.TargetRevision)
			}
			w.deletes = nil
			w.pass(time.Hour)
			if s := w.status(); s.Phase != complete && s.Phase != v1alpha1.PhaseRolledBack {
				t.Errorf("an hour later it is %s: %s", s.Phase, s.Message)
			}
		})
	}
}

// The canary has what is bad when content is turned off. That is a change in steps too, which goes back to the content of
// before, and replaces no pod again and again.
func TestContentThatIsTurnedOffGoesBackToTheContentOfBefore(t *testing.T) {
	w := newWorld(t, soakingCanary(careful))
	w.pass(20 * time.Minute)
	before := w.stored.StableRevision
	w.write("bad")
	w.pass(10 * time.Second)
	w.wantRuns(map[string]int{"good": 4, "bad": 1})
	w.policy = w.compile(soakingCanary(plain))
	w.tellPolicy()
	deleted := 0
	w.deletes = func(*action.DeletePod) { deleted++ }
	for range 10 {
		w.pass(time.Minute)
	}
	w.wantPhase(v1alpha1.PhaseRolledBack, "container agent ends")
	w.wantRuns(map[string]int{"good": 5})
	if s := w.status(); deleted > 1 || s.StableRevision != before {
		t.Errorf("%d pods were deleted, want the canary's; stable is %s, and was %s", deleted, s.StableRevision, before)
	}
}

// Somebody deletes the key with which copies are checked, while content is no part of revisions any more: it is made
// again, the same one. Without it no pod of the stable revision could be made, and a node whose pod is lost would wait.
func TestAKeyIsMadeAgainWhileContentIsOff(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(time.Hour)
	w.policy = w.compile(soakingCanary(plain))
	w.tellPolicy()
	key := w.objects[content.KeyRef].(*corev1.Secret)
	w.drop(content.KeyRef)
	w.pass(time.Minute)
	if again, is := w.objects[content.KeyRef].(*corev1.Secret); !is || string(again.Data["key"]) != string(key.Data["key"]) {
		t.Fatal("the key is not made again")
	}
	w.start(true)
	w.book.Step(podGone(w, "n4"))
	w.pass(time.Minute)
	w.wantRuns(map[string]int{"good": 5})
}
