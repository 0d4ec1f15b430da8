package matrix

import (
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// The pace of a policy holds over all its DaemonSets, for nodes that wait until it is stored
// what they were like as well: what is reserved has begun, and is not counted twice.
func TestPaceOfReservations(t *testing.T) {
	for _, stored := range []bool{true, false} {
		w := newWorld(row.Config{})
		policy, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{Pace: v1alpha1.Pace{NodesPerMinute: ptr.To[int32](6)}}, time.LoadLocation)
		if err != nil {
			t.Fatal(err)
		}
		sets := []string{"logs", "net"}
		for i := range 30 {
			node := fmt.Sprintf("n%02d", i)
			w.setNode(fact.Node{Name: node})
			for _, name := range sets {
				w.setPod(fact.Pod{UID: types.UID(name + node), Name: name + node, Owner: types.UID(name), Node: node,
					Bound: true, Revision: "a", Ready: true, ReadySince: noon, Created: noon})
			}
		}
		spec := func(name, revision string, generation int64) {
			w.setDaemonSet(fact.DaemonSet{UID: types.UID(name), Namespace: "default", Name: name,
				Generation: generation,
				Revision:   revision, Strategy: rollingUpdate("100%",
					"0"), Reported: w.sets[types.UID(name)].Reported}, corev1.PodSpec{})
		}
		for _, name := range sets {
			info := w.rolloutOf(types.UID(name))
			info.Policy, info.PolicyUID = policy, "p"
			w.setRollout(info)
			spec(name, "a", 1)
		}
		until := func(d time.Duration) (deleted int) {
			for end := w.now.Add(d); w.now.Before(end); w.tick(time.Second) {
				for _, a := range w.ready() {
					if _, is := a.(*action.DeletePod); is {
						deleted++
					}
				}
				w.deliver()
				for i := 0; i < len(w.inFlight); { // statuses of rollouts may be slow
					if _, is := w.inFlight[i].(*action.UpdateRollout); is && !stored && w.now.Unix()%4 != 0 {
						i++
						continue
					}
					w.finish(i, action.OK, true)
				}
				for _, p := range maps.Clone(w.pods) {
					w.obey(p)
				}
			}
			return deleted
		}
		until(10 * time.Second)
		for _, name := range sets {
			spec(name, "b", 2)
		}
		if n := until(5 * time.Minute); n < 25 || n > 33 {
			t.Errorf("stored at once %v: %d nodes have begun in 5 minutes at 6 a minute", stored, n)
		}
	}
}

// Nodes go back without a pace when the old template is set again, as they do when the change is aborted, and when it
// is both. Nodes that come back after a change keep to it.
func TestGoingBackHasNoPace(t *testing.T) {
	for _, how := range []string{"abort", "undo", "abort, then undo"} {
		w := following(t, 20, "waves: [{name: all, percent: 100, soak: 1h}]\npace: {nodesPerMinute: 60}")
		on := func(revision string) (n int) {
			for _, p := range w.pods {
				if p.Revision == revision && !p.Terminating {
					n++
				}
			}
			return n
		}
		set := func(generation int64, revision string) {
			info := w.sets["logs"]
			info.Generation, info.Revision, info.Strategy = generation, revision, rollingUpdate("100%", "0")
			w.setDaemonSet(info, corev1.PodSpec{})
		}
		pass := func(seconds int) {
			for range seconds {
				w.answerAll(action.OK)
				for _, p := range maps.Clone(w.pods) {
					w.obey(p)
				}
				w.tick(time.Second)
			}
		}
		set(2, "b")
		pass(10)
		if n := on("b"); n > 11 {
			t.Errorf("%d nodes have begun in 10 s at 60 a minute", n)
		}
		pass(20)
		if how != "undo" {
			info := w.rolloutOf("logs")
			info.Spec.Abort = &v1alpha1.Abort{Revision: "b"}
			w.setRollout(info)
		}
		if how != "abort" {
			set(3, "a")
		}
		pass(3)
		if n := on("b"); n > 0 {
			t.Errorf("%s: %d of 20 nodes have not gone back after 3 s", how, n)
		}
	}
}

// A pace that has saved up one node lets one begin now; one without a limit says so, and waits for nothing.
func TestPaceAtItsBoundaries(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	var p pace
	p.set(0, now)
	if p.limited() || p.spend(5) != 5 || p.allows(now) < 1 {
		t.Error("a pace without a limit limits")
	}
	p.set(1, now)
	if next := p.next(); !p.limited() || p.allows(now) != 1 || !next.Equal(now) {
		t.Errorf("one is saved up, %d may begin, the next at %s", p.allows(now), next)
	}
	p.spend(1)
	if next := p.next(); p.allows(now) != 0 || next.Sub(now).Round(time.Second) != time.Minute {
		t.Errorf("none is saved up, %d may begin, the next after %s", p.allows(now), next.Sub(now))
	}
}

func TestPace(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	var p pace
	p.set(120, now)
	begun := 0
	for range 600 {
		n := p.allows(now)
		p.spend(n)
		begun += n
		now = now.Add(100 * time.Millisecond)
	}
	if begun < 118 || begun > 122 {
		t.Errorf("%d began in a minute at 120 a minute", begun)
	}
	if n := p.allows(now.Add(time.Hour)); n > 20 {
		t.Errorf("an hour's pause lets %d begin at once", n)
	}
	p.set(6, now)
	p.spend(p.allows(now))
	if p.allows(now.Add(9*time.Second)) != 0 || p.allows(p.next()) != 1 {
		t.Errorf("six a minute: the next begins at %s, now is %s", p.next(), now)
	}
	p.set(0, now)
	if p.allows(now) < 1<<20 {
		t.Error("no limit is one")
	}
}
