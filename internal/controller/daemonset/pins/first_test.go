package pins

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

const labeledCanary = `{waves: [{name: canary, nodes: {matchLabels: {fleet: canary}}, soak: 1m}], failure: {max: 0, min: 1, then: Rollback}, images: Pinned}`

// withCanary is a fleet on which the first template is complete; n0 is the canary.
func withCanary(t *testing.T) *world {
	w := newWorld(t, labeledCanary)
	w.start()
	w.book.Step(fact.Node{Name: "n0", Labels: map[string]string{"fleet": "canary"}})
	w.settle()
	w.pass(10 * time.Minute)
	return w
}

func (w *world) have(revision string) (n int) {
	for _, p := range w.pods {
		if p.Labels[appsv1.ControllerRevisionHashLabelKey] == revision {
			n++
		}
	}
	return n
}

// Nodes join all the time, as an autoscaler has them, and each takes a while to start the stable daemon: an image that
// is to be pinned finds its first node all the same.
func TestPinnedChangeBeginsWhereNodesJoin(t *testing.T) {
	for _, joins := range []bool{false, true} {
		w := withCanary(t)
		made := map[string]time.Time{}
		for i := range 120 { // a minute each
			if joins {
				name := fmt.Sprint("joins-", i)
				made[name], w.slow[name] = w.now, true
				w.book.Step(fact.Node{Name: name})
				w.settle()
			}
			if i == 2 {
				w.edit()
			}
			for range 12 {
				w.tick(5 * time.Second)
				w.settle()
				for name, at := range made {
					if w.slow[name] && !w.now.Before(at.Add(70*time.Second)) {
						delete(w.slow, name)
						w.again()
					}
				}
			}
		}
		if w.have("t2") == 0 {
			t.Errorf("nodes join: %t: two hours after the template was changed none of %d nodes has it; %s: %s", joins, len(w.pods),
				w.stored.Phase, w.stored.Message)
		}
	}
}

// Nobody binds the stable pod of one node of a later step. It holds up its own step, and not the canary.
func TestPinnedChangeBeginsThoughAPodElsewhereIsNotBound(t *testing.T) {
	for _, unbound := range []bool{false, true} {
		w := withCanary(t)
		for _, p := range w.pods {
			if unbound && p.Spec.NodeName == "n5" {
				info := w.project(p)
				info.Bound, info.BoundAt, info.Ready, info.ReadySince = false, time.Time{}, false, time.Time{}
				w.book.Step(info)
			}
		}
		w.edit()
		for range 720 {
			w.tick(10 * time.Second)
			w.settle()
		}
		if w.have("t2") == 0 {
			t.Errorf("a pod of the last step is not bound: %t: after two hours no node has the template; %s: %s", unbound,
				w.stored.Phase, w.stored.Message)
		}
	}
}

// While the first node pulls, the rollout says what all others wait for.
func TestRolloutSaysThatOthersWaitForTheFirstNode(t *testing.T) {
	w := newWorld(t, pinned)
	w.start()
	w.pass(10 * time.Minute)
	w.slow["n0"], w.slow["n1"], w.slow["n2"] = true, true, true
	w.edit()
	w.pass(time.Minute)
	const why = "; images: all others wait for the digests that the first node gets"
	if w.most != 1 || w.stored.Phase != v1alpha1.PhaseProgressing || !strings.HasSuffix(w.stored.Message, why) {
		t.Errorf("%d pods pull, and the rollout is %s: %s", w.most, w.stored.Phase, w.stored.Message)
	}
	clear(w.slow)
	w.again()
	w.pass(10 * time.Minute)
	if w.stored.Phase != v1alpha1.PhaseComplete || strings.Contains(w.stored.Message, "images") {
		t.Errorf("at last the rollout is %s: %s", w.stored.Phase, w.stored.Message)
	}
}

// A controller that starts in the middle of a rollout keeps what is said of the stable template, and so does the next.
func TestRestartsInTheMiddleKeepTheStableDigests(t *testing.T) {
	w := withCanary(t)
	w.registry["demo:v1"] = sha(7)
	w.edit()
	w.tick(30 * time.Second) // the canary soaks
	w.settle()
	said := w.stored.Images.Templates
	if len(said) != 2 {
		t.Fatalf("before the restart it is said %+v", said)
	}
	for range 2 {
		w.start()
		w.tick(time.Second)
		w.settle()
		if is := w.stored.Images.Templates; !reflect.DeepEqual(is, said) {
			t.Fatalf("after a restart it is said %+v, want %+v", is, said)
		}
	}
	for uid, p := range w.pods {
		if p.Spec.NodeName == "n3" {
			delete(w.pods, uid)
			w.book.Step(fact.PodGone(uid))
		}
	}
	w.tick(time.Second)
	w.settle()
	for _, p := range w.pods {
		if p.Spec.NodeName == "n3" && p.Spec.InitContainers[0].Image != "demo@"+sha(1) {
			t.Errorf("the stable pod that is made again has %s", p.Spec.InitContainers[0].Image)
		}
	}
}

// While the policy cannot be followed, a controller that starts says what was said before, and makes pods by it.
func TestAStartWithoutAPolicyThatCanBeFollowedKeepsTheDigests(t *testing.T) {
	for _, following := range []course.Following{course.Lost, course.Gone} {
		t.Run(fmt.Sprint(following), func(t *testing.T) {
			w := newWorld(t, pinned)
			w.start()
			w.pass(10 * time.Minute)
			said := w.stored.Images.Templates
			w.registry["demo:v1"] = sha(7)
			w.following = following
			w.start()
			w.lose("n3")
			w.pass(time.Minute)
			if w.stored.Images == nil || !reflect.DeepEqual(w.stored.Images.Templates, said) {
				t.Errorf("it is said %+v, want %+v", w.stored.Images, said)
			}
			w.wantRuns(map[string]int{byTag(1): 1, byDigest(1): 5})
			w.following = course.Followed
			w.tellPolicy()
			w.lose("n2")
			w.pass(time.Minute)
			w.wantRuns(map[string]int{byTag(1): 1, byDigest(1): 5})
		})
	}
}

// A second pod was asked for, since the first one says nothing. News of the first do not let a third begin.
func TestNewsOfAnEarlierFirstAreNoLeave(t *testing.T) {
	w := newWorld(t, pinned)
	w.slowAll()
	w.start()
	w.tick(Patience)
	w.book.Begun("ds", "t1", "agent-second")
	for _, p := range w.pods {
		info := w.project(p)
		info.Restarts++
		w.book.Step(info)
	}
	if got := w.book.sets["ds"].unknown["t1"].state(w.now); got != fact.FirstPulls {
		t.Errorf("a third may begin: %v", got)
	}
}

// Whoever let the first pod through had a clock that is ahead, or somebody wrote a mark: another is first in time.
func TestAMarkThatIsAheadHoldsNobody(t *testing.T) {
	w := newWorld(t, pinned)
	w.slowAll()
	w.start()
	for _, p := range w.pods {
		p.Annotations = map[string]string{pinning.Annotation: pinning.Mark(w.now.Add(1000*time.Hour), p.Name)}
	}
	w.start()
	if at, ok := w.book.NextTick(); !ok || at.After(w.now.Add(Patience)) {
		t.Errorf("the next one is first %s from now", at.Sub(w.now))
	}
}

// The first node has its ten minutes whatever the API's clock says: nobody asks beside it, and nobody waits for longer.
// So for pods that come back in a step whose nodes have lost theirs.
func TestTheFirstNodeHasItsTimeByAnyClock(t *testing.T) {
	for _, off := range []time.Duration{0, -time.Hour, time.Hour} {
		w := newWorld(t, "{waves: [{name: all, percent: 100}], failure: {max: 50, min: 50}, images: Pinned}")
		w.off = off
		w.slowAll()
		w.start()
		w.pass(5 * time.Minute)
		if len(w.pods) != 1 {
			t.Errorf("the API's clock is off by %s: after five minutes %d pods pull, want one", off, len(w.pods))
		}
		w.pass(10 * time.Minute)
		if len(w.pods) != 2 {
			t.Errorf("the API's clock is off by %s: after a quarter of an hour %d pods pull, want two", off, len(w.pods))
		}
		w.pass(time.Hour)
		if len(w.pods) < 6 {
			t.Errorf("the API's clock is off by %s: after more than an hour %d pods pull", off, len(w.pods))
		}
		for uid := range w.pods {
			delete(w.pods, uid)
			w.book.Step(fact.PodGone(uid))
		}
		w.most = 0
		w.pass(5 * time.Minute)
		if w.most != 1 {
			t.Errorf("the API's clock is off by %s: %d pods that come back asked at one time, want one", off, w.most)
		}
	}
}
