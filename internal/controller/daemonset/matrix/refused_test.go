package matrix

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/rolloutpolicy"
)

// following is a world with a DaemonSet that follows a policy and is complete.
func following(t *testing.T, nodes int, policy string) *world {
	t.Helper()
	w := newWorld(Config{StatusInterval: time.Millisecond, TurnInterval: -1})
	info := DaemonSetInfo{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "a", Strategy: rollingUpdate("1", "0")}
	w.setDaemonSet(info, corev1.PodSpec{})
	for i := range nodes {
		name := fmt.Sprintf("n%03d", i)
		w.setNode(NodeInfo{Name: name})
		w.setPod(PodInfo{UID: types.UID(name), Name: name, Owner: "logs", Node: name, Revision: "a", Bound: true, Ready: true, ReadySince: noon, Created: noon})
	}
	w.setPolicy(t, policy)
	w.answerAll(OK)
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
func (w *world) answerAll(rollouts Outcome) (deleted []*DeletePod) {
	for range 100 {
		w.ready()
		if len(w.inFlight) == 0 {
			break
		}
		for len(w.inFlight) > 0 {
			switch a := w.inFlight[0].(type) {
			case *DeletePod:
				deleted = append(deleted, a)
				w.finish(0, OK, true)
			case *UpdateRollout:
				w.finish(0, rollouts, rollouts == OK)
			default:
				w.finish(0, OK, true)
			}
		}
	}
	return deleted
}

// Nothing is taken away while the API does not take where the rollout stands. After a few seconds
// the DaemonSet's condition says that it waits for that.
func TestStatusThatIsNotTakenIsTold(t *testing.T) {
	w := following(t, 2, "{}")
	w.update()
	progressing := func() Condition { return w.m.rows["logs"].conditions().Progressing }
	for i := range 2 * noAccident {
		if deleted := w.answerAll(Failed); len(deleted) > 0 {
			t.Fatalf("%s, and nothing is stored", deleted[0])
		}
		if got := progressing(); i == 0 && got.Status != corev1.ConditionTrue {
			t.Errorf("after one failure: %+v", got)
		}
		w.tick(time.Minute)
	}
	if got := progressing(); got.Status != corev1.ConditionFalse || got.Reason != FollowsPolicy+"Progressing" || !strings.Contains(got.Message, "before the API takes the status") {
		t.Errorf("when no status is taken for long: %+v", got)
	}
	if deleted := w.answerAll(OK); len(deleted) != 1 {
		t.Errorf("it is taken, and %d pods are deleted", len(deleted))
	}
	if got := progressing(); got.Status != corev1.ConditionTrue || strings.Contains(got.Message, "takes the status") {
		t.Errorf("in the end: %+v", got)
	}
}

// A pod that has ended waits again when there is no room any more for its node's name in what is
// stored. That is no drift.
func TestNameThatIsLeftOutIsNoDrift(t *testing.T) {
	const waves = "waves: [{name: all, percent: 100, maxUnavailable: 100%}]"
	w := following(t, 202, "pace: {nodesPerMinute: 1}\n"+waves)
	w.update()
	if deleted := w.answerAll(OK); len(deleted) != 1 || deleted[0].Node != "n000" {
		t.Fatalf("%d are deleted: %v", len(deleted), deleted)
	}
	for again := range 2 {
		for _, p := range w.podsOf("logs", "n000") {
			w.dropPod(p.UID)
		}
		w.tick(2 * time.Millisecond)
		w.answerAll(OK)
		pods := w.podsOf("logs", "n000")
		if len(pods) != 1 || pods[0].Revision != "b" {
			t.Fatalf("there are %+v", pods)
		}
		pods[0].Bound, pods[0].Phase = true, PodFailed
		w.setPod(pods[0])
		w.tick(2 * time.Millisecond)
		if deleted := w.answerAll(OK); (len(deleted) == 1) != (again == 0) {
			t.Fatalf("at the failure %d: %v", again+1, deleted)
		}
	}
	w.setPolicy(t, waves)
	w.tick(2 * time.Millisecond)
	w.ready()
	if n := w.m.rows["logs"].guide.course.Reserved(); n != 200 {
		t.Fatalf("%d are reserved", n)
	}
	if found := w.m.Audit(); len(found) > 0 {
		t.Errorf("the audit found %q", found)
	}
}
