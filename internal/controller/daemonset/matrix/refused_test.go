package matrix

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// following is a world with a DaemonSet that follows a policy and is complete.
func following(t *testing.T, nodes int, policy string) *world {
	t.Helper()
	return followingBy(t, row.Config{}, nodes, policy)
}

func followingBy(t *testing.T, cfg row.Config, nodes int, policy string) *world {
	t.Helper()
	cfg.StatusInterval = time.Millisecond
	w := newWorld(cfg)
	info := fact.DaemonSet{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "a", Strategy: rollingUpdate("1", "0")}
	w.setDaemonSet(info, corev1.PodSpec{})
	for i := range nodes {
		name := fmt.Sprintf("n%03d", i)
		w.setNode(fact.Node{Name: name})
		w.setPod(fact.Pod{UID: types.UID(name), Name: name, Owner: "logs", Node: name, Revision: "a", Bound: true, Ready: true, ReadySince: noon, Created: noon})
	}
	w.setPolicy(t, policy)
	w.answerAll(action.OK)
	return w
}

func (w *world) setPolicy(t *testing.T, policy string) {
	t.Helper()
	var spec v1alpha1.RolloutPolicySpec
	if err := yaml.UnmarshalStrict([]byte(policy), &spec); err != nil {
		t.Fatal(err)
	}
	p, err := rolloutpolicy.Compile(&spec, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	info := w.rolloutOf("logs")
	info.Policy, info.PolicyUID = p, "policy"
	w.setRollout(info)
}

// update gives the DaemonSet its second template.
func (w *world) update() {
	info := w.sets["logs"]
	info.Generation, info.Revision = 2, "b"
	w.setDaemonSet(info, corev1.PodSpec{})
}

// answerAll takes what is to be done, until that is nothing, and answers what is not about a
// rollout with success. It returns the deletions.
func (w *world) answerAll(rollouts action.Outcome) (deleted []*action.DeletePod) {
	for range 100 {
		w.ready()
		if len(w.inFlight) == 0 {
			break
		}
		for len(w.inFlight) > 0 {
			switch a := w.inFlight[0].(type) {
			case *action.DeletePod:
				deleted = append(deleted, a)
				w.finish(0, action.OK, true)
			case *action.UpdateRollout:
				w.finish(0, rollouts, rollouts == action.OK)
			default:
				w.finish(0, action.OK, true)
			}
		}
	}
	return deleted
}

// A surge pod is refused where it is a node's turn, and the node goes: nobody counts it any more.
func TestANodeWithARefusedPodIsForgotten(t *testing.T) {
	w := following(t, 3, "waves: [{name: canary, count: 1, soak: 1h}]")
	info := w.sets["logs"]
	info.Strategy, info.Generation, info.Revision = rollingUpdate("0", "1"), 2, "b"
	w.setDaemonSet(info, corev1.PodSpec{})
	w.refused = "it is forbidden"
	refusing := ""
	for range 20 {
		w.ready()
		for len(w.inFlight) > 0 {
			if a, is := w.inFlight[0].(*action.CreatePod); is {
				refusing = a.Node
				w.finish(0, action.Failed, false)
			} else {
				w.finish(0, action.OK, true)
			}
		}
	}
	if refusing == "" {
		t.Fatal("no pod was refused")
	}
	w.dropNode(refusing)
	w.answerAll(action.OK)
	st, _ := w.m.Rollout("logs")
	sum := 0
	for _, n := range st.Counts {
		sum += int(n)
	}
	if sum != 2 {
		t.Errorf("of two nodes the rollout counts %v", st.Counts)
	}
}

// In one moment a daemon becomes available by time alone, and the target fails on another node, which changes what each
// node is to do. The daemon counts as available from then on.
func TestADaemonIsAvailableInTheMomentInWhichAnotherFails(t *testing.T) {
	w := following(t, 3, "failure: {max: 0, min: 1, startDeadline: 1m}")
	info := w.sets["logs"]
	info.Generation, info.Revision, info.Strategy, info.MinReadySeconds = 2, "b", rollingUpdate("2", "0"), 60
	w.setDaemonSet(info, corev1.PodSpec{})
	var made []string
	for range 5 {
		for _, a := range w.m.Ready() {
			answer := action.Answer{Action: a, Outcome: action.OK}
			switch a := a.(type) {
			case *action.DeletePod:
				w.m.Step(fact.PodGone(a.PodUID))
			case *action.CreatePod:
				answer.Pod = types.UID(a.PodName)
				made = append(made, a.Node)
				if len(made) == 2 {
					w.now = w.now.Add(time.Minute)
					w.m.Step(fact.Now{Time: w.now})
				}
				p := fact.Pod{UID: answer.Pod, Name: a.PodName, Owner: "logs", Node: a.Node, Revision: "b", Bound: true,
					BoundAt: w.now, Created: w.now}
				if len(made) == 2 {
					p.Ready, p.ReadySince = true, w.now
				}
				w.m.Step(p)
			}
			w.m.Step(answer)
		}
	}
	w.now = w.now.Add(time.Minute) // which is the last one of the first
	w.m.Step(fact.Now{Time: w.now})
	w.m.Ready()
	for i, want := range []standing.Verdict{standing.FailedRevision, standing.Current} {
		if got, why, _ := w.m.Verdict("logs", made[i]); got != want {
			t.Errorf("node %s is %s (%s), want %s", made[i], got, why, want)
		}
	}
}

// A process that stood still for long finds out at once that a daemon has become available, and that it should have been
// by now: it was in time.
func TestADaemonIsNotLateWhereTheProcessStoodStill(t *testing.T) {
	w := following(t, 2, "failure: {max: 0, min: 1, startDeadline: 1m}")
	info := w.sets["logs"]
	info.Generation, info.Revision, info.MinReadySeconds = 2, "b", 60
	w.setDaemonSet(info, corev1.PodSpec{})
	made := ""
	for range 5 {
		for _, a := range w.m.Ready() {
			answer := action.Answer{Action: a, Outcome: action.OK}
			switch a := a.(type) {
			case *action.DeletePod:
				w.m.Step(fact.PodGone(a.PodUID))
			case *action.CreatePod:
				answer.Pod, made = types.UID(a.PodName), a.Node
				w.m.Step(fact.Pod{UID: answer.Pod, Name: a.PodName, Owner: "logs", Node: a.Node, Revision: "b", Bound: true,
					BoundAt: w.now, Created: w.now, Ready: true, ReadySince: w.now})
			}
			w.m.Step(answer)
		}
	}
	w.now = w.now.Add(5 * time.Minute)
	w.m.Step(fact.Now{Time: w.now})
	if got, why, _ := w.m.Verdict("logs", made); got != standing.Current {
		t.Errorf("node %s is %s (%s), want it current", made, got, why)
	}
	if st, _ := w.m.Rollout("logs"); st.Phase == v1alpha1.PhaseHalted {
		t.Errorf("the rollout is %s: %s", st.Phase, st.Message)
	}
}
