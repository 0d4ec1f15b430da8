package matrix

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// counted is how calls are counted: not at all, but for the command test/measure, which says how with a file of its own.
var counted = struct {
	begin func()
	end   func() string
}{func() {}, func() string { return "nobody counts" }}

// TestWalk: one pod of 20 nodes becomes ready in the middle of a rolling update.
func TestWalk(t *testing.T) {
	for _, guided := range []bool{false, true} {
		for _, ready := range []bool{false, true} {
			t.Logf("policy %t, Ready counted %t: %s", guided, ready, walked(t, guided, ready))
		}
	}
}

func walked(t *testing.T, guided, ready bool) string {
	m := New(row.Config{})
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	m.Step(fact.Now{Time: now})
	for i := range 20 {
		labels := map[string]string{"os": "linux", "rack": fmt.Sprint("r", i%4)}
		if i < 3 {
			labels["fleet"] = "canary"
		}
		m.Step(fact.Node{Name: fmt.Sprintf("node-%02d", i), Labels: labels})
	}
	info := fact.DaemonSet{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "v1",
		Placement: placement.Compile(&corev1.PodSpec{}), Strategy: rollingUpdate("1", "0")}
	m.Step(info)
	for i := range 20 {
		m.Step(fact.Pod{UID: types.UID(fmt.Sprint("old-", i)), Name: fmt.Sprint("logs-", i), Owner: "logs", Node: fmt.Sprintf("node-%02d", i),
			Bound: true, BoundAt: now, Revision: "v1", Ready: true, ReadySince: now, Created: now})
	}
	rollout := fact.Rollout{UID: "logs", PolicyUID: "policy", Policy: canaryFirst(t)}
	if guided {
		m.Step(rollout)
	}
	// settle obeys until there is nothing left to do, but makes no pod ready.
	made := 0
	var fresh fact.Pod
	settle := func() {
		for actions := m.Ready(); len(actions) > 0; actions = m.Ready() {
			for _, a := range actions {
				switch a := a.(type) {
				case *action.DeletePod:
					m.Step(fact.PodGone(a.PodUID))
					m.Step(action.Answer{Action: a})
				case *action.CreatePod:
					made++
					uid := types.UID(fmt.Sprint("new-", made))
					m.Step(action.Answer{Action: a, Pod: uid})
					fresh = fact.Pod{UID: uid, Name: a.PodName, Owner: "logs", Node: a.Node, Bound: true, BoundAt: now, Revision: a.Revision, Created: now}
					m.Step(fresh)
				case *action.UpdateRollout:
					m.Step(action.Answer{Action: a})
					rollout.Status = &a.Status
					m.Step(rollout)
				default:
					m.Step(action.Answer{Action: a})
				}
			}
			now = now.Add(time.Second)
			m.Step(fact.Now{Time: now})
		}
	}
	settle()
	info.Generation, info.Revision = 2, "v2"
	info.Earlier = &placement.Revisions{ByRevision: map[string]*placement.Rules{"v1": info.Placement}}
	m.Step(info)
	settle()
	if fresh.Revision != "v2" {
		t.Fatalf("no pod of the new revision was made: %+v", fresh)
	}
	fresh.Ready, fresh.ReadySince = true, now
	counted.begin()
	m.Step(fresh)
	if ready {
		m.Ready()
	}
	return counted.end()
}

func canaryFirst(t *testing.T) *rolloutpolicy.Policy {
	p, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{
		Waves: []v1alpha1.Wave{{Name: "canary", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "canary"}}}},
	}, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
