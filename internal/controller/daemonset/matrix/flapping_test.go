package matrix

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// Hundreds of nodes come and go for a while: each DaemonSet's status, and its rollout's, is
// written a few times a second, none waits for another, whether answers come or not; and the
// last state is written soon after the last change.
func TestStatusesOfFlappingNodes(t *testing.T) {
	for name, answer := range map[string]func(i int) action.Outcome{
		"all is answered":       func(int) action.Outcome { return action.OK },
		"every third one fails": func(i int) action.Outcome { return []action.Outcome{action.OK, action.OK, action.Failed}[i%3] },
	} {
		t.Run(name, func(t *testing.T) { flap(t, answer) })
	}
}

func flap(t *testing.T, answer func(i int) action.Outcome) {
	const nodes, sets = 300, 4
	f := &flapping{t: t, m: New(row.Config{}), now: noon, shown: map[types.UID]fact.Status{}, last: map[string]time.Time{}, writes: map[string]int{}, answer: answer}
	f.m.Step(fact.Now{Time: f.now})
	for i := range nodes {
		f.m.Step(fleetNode(i))
	}
	policy, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{}, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	var pods []fact.Pod
	for s := range sets {
		uid := types.UID(fmt.Sprint("set-", s))
		if s%2 == 0 {
			f.m.Step(fact.Rollout{UID: uid, PolicyUID: "p", Policy: policy})
		}
		f.m.Step(fact.DaemonSet{UID: uid, Namespace: "default", Name: string(uid), Generation: 1, Revision: "a",
			Placement: placement.Compile(&corev1.PodSpec{}), Strategy: rollingUpdate("10%", "0")})
		for i := range nodes {
			p := fact.Pod{UID: types.UID(fmt.Sprint(uid, i)), Name: fmt.Sprint(uid, "-", i), Owner: uid, Node: fleetNode(i).Name,
				Bound: true, Revision: "a", Ready: true, ReadySince: noon, Created: noon}
			pods = append(pods, p)
			f.m.Step(p)
		}
	}
	f.pass(2 * time.Second)
	clear(f.writes)
	const seconds = 15
	for step := range seconds * 20 {
		for i := step % 7; i < len(pods); i += 7 { // a seventh of all, twenty times a second
			p := &pods[i]
			p.Ready = !p.Ready
			if p.Ready {
				p.ReadySince = f.now
			}
			f.m.Step(*p)
			f.m.Step(fact.Health{Name: p.Node, Fault: map[bool]string{false: "it does not answer"}[p.Ready], Silent: true, Since: f.now})
		}
		f.pass(50 * time.Millisecond)
	}
	for s := range sets {
		for _, what := range []string{"status set-", "rollout set-"} {
			key := fmt.Sprint(what, s)
			if n := f.writes[key]; (n > 5*seconds+3 || n < 2*seconds) && (s%2 == 0 || what == "status set-") {
				t.Errorf("%s was written %d times in %d s", key, n, seconds)
			}
		}
	}
	f.pass(2 * time.Second)
	for uid, r := range f.m.rows {
		if f.shown[uid] != r.Status() {
			t.Errorf("%s was written as %s last, and is %s", uid, f.shown[uid], r.Status())
		}
	}
	clear(f.writes)
	f.pass(10 * time.Second)
	if len(f.writes) > 0 {
		t.Errorf("all is quiet, and still is written %v", f.writes)
	}
}

// flapping is a matrix whose actions are answered a little later.
type flapping struct {
	t      *testing.T
	m      *Matrix
	now    time.Time
	shown  map[types.UID]fact.Status
	last   map[string]time.Time
	writes map[string]int
	answer func(i int) action.Outcome
	asked  int
}

// pass lets time go by in steps of ten milliseconds.
func (f *flapping) pass(d time.Duration) {
	for end := f.now.Add(d); f.now.Before(end); {
		f.now = f.now.Add(10 * time.Millisecond)
		f.m.Step(fact.Now{Time: f.now})
		for _, a := range f.m.Ready() {
			out := f.answer(f.asked)
			f.asked++
			switch a := a.(type) {
			case *action.UpdateStatus:
				f.count("status "+a.Name, out)
				if out == action.OK {
					f.shown[a.UID] = a.Status
				}
			case *action.UpdateRollout:
				f.count("rollout "+a.Name, out)
			}
			f.m.Step(action.Answer{Action: a, Outcome: out})
		}
	}
}

func (f *flapping) count(what string, out action.Outcome) {
	if last, has := f.last[what]; has && out == action.OK && f.now.Sub(last) < 200*time.Millisecond && f.writes[what] > 1 {
		f.t.Errorf("%s is written twice within %s", what, f.now.Sub(last))
	}
	if out == action.OK {
		f.last[what] = f.now
		f.writes[what]++
	}
}
