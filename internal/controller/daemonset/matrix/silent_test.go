package matrix

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// A node that fell silent gets a taint that keeps new pods away. With a pod it is still one of the fleet, and out of
// order; with another taint, or without a pod, it is not selected.
func TestSilentNodeIsOutOfOrder(t *testing.T) {
	policy, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{}, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	m := New(row.Config{})
	m.Step(fact.Now{Time: now})
	unreachable := corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}
	dedicated := corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}
	for name, taints := range map[string][]corev1.Taint{"well": nil, "silent": {unreachable},
		"other": {unreachable, dedicated}, "empty": {unreachable}} {
		m.Step(fact.Node{Name: name, Taints: taints})
		if len(taints) > 0 {
			m.Step(fact.Health{Name: name, Fault: "the node does not answer", Silent: true, Since: now})
		}
	}
	m.Step(fact.Rollout{UID: "ds", Policy: policy, Following: course.Followed,
		Status: &v1alpha1.DaemonSetRolloutStatus{StableRevision: "old", TargetRevision: "new"}})
	m.Step(fact.DaemonSet{UID: "ds", Name: "ds", Revision: "new", Placement: placement.Compile(&corev1.PodSpec{}),
		Earlier: &placement.Revisions{ByRevision: map[string]*placement.Rules{"old": placement.Compile(&corev1.PodSpec{})}}})
	for _, name := range []string{"well", "silent", "other"} {
		m.Step(fact.Pod{UID: types.UID("pod-" + name), Name: name, Owner: "ds", Node: name, Bound: true,
			Revision: "old", Ready: true, ReadySince: now.Add(-time.Hour), Created: now.Add(-time.Hour)})
	}
	m.Ready()
	for name, want := range map[string]standing.Verdict{"silent": standing.NodeFault, "other": standing.NotSelected,
		"empty": standing.NotSelected} {
		if got, why, _ := m.Verdict("ds", name); got != want {
			t.Errorf("node %s is %s (%s), want %s", name, got, why, want)
		}
	}
}
