package admit

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

func policyOf(t testing.TB) *rolloutpolicy.Policy {
	t.Helper()
	canary := &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "canary"}}
	p, err := rolloutpolicy.Compile(&v1alpha1.RolloutPolicySpec{Waves: []v1alpha1.Wave{
		{Name: "canary", Nodes: canary}, {Name: "zones", Each: "zone"},
	}}, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAssignedIsWhatTheCourseSays puts the core that leads changes beside another controller into any status, lets it
// say what a node without a daemon is to have, and asks for the same from the status that it would write.
func TestAssignedIsWhatTheCourseSays(t *testing.T) {
	policy := policyOf(t)
	now := metav1.NewTime(time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC))
	rapid.Check(t, func(r *rapid.T) {
		newest := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "newest")
		before := &v1alpha1.DaemonSetRolloutStatus{
			StableRevision: rapid.SampledFrom([]string{"", "a", "b"}).Draw(r, "stable"),
			TargetRevision: rapid.SampledFrom([]string{"", "a", "b", newest, newest}).Draw(r, "target"),
			StepStarted:    &now,
		}
		for i, name := range []string{"canary", "zones/x", "zones/y", "zones/(none)"} {
			before.Steps = append(before.Steps, v1alpha1.StepStatus{Name: name})
			if i == 0 || rapid.Bool().Draw(r, name+" has begun") && before.Step == before.Steps[i-1].Name {
				before.Step = name
			}
		}
		for _, revision := range []string{"a", "b", "c"} {
			switch rapid.IntRange(0, 5).Draw(r, "fate of "+revision) {
			case 0:
				before.FailedRevisions = append(before.FailedRevisions,
					v1alpha1.FailedRevision{Revision: revision, Action: v1alpha1.FailureRollback})
			case 1:
				before.FailedRevisions = append(before.FailedRevisions,
					v1alpha1.FailedRevision{Revision: revision, Action: v1alpha1.FailureHalt})
			case 2:
				before.EarlierFailures = append(before.EarlierFailures, revision)
			}
		}
		c, fleet := course.New(), rolloutpolicy.NewFleet(policy)
		rules := placement.Compile(&corev1.PodSpec{})
		all := map[string]*placement.Rules{"a": rules, "b": rules, "c": rules}
		c.SetDaemonSet(course.DaemonSet{Beside: true, Set: placement.Set{Newest: newest, Rules: rules,
			Earlier: &placement.Revisions{ByRevision: all}}})
		c.SetPolicy(policy, course.Followed, "")
		c.Reach(now.Time)
		for i, labels := range []map[string]string{{"fleet": "canary"}, {"zone": "x"}, {"zone": "y"}, {}} {
			name := fmt.Sprint("node-", i)
			fleet.Set(name, labels)
			c.SetNode(name, course.Node{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
				Labels: labels}}})
			c.SetDaemon(name, standing.Daemon{})
		}
		c.Start(before)
		follows := policy
		if rapid.Bool().Draw(r, "the policy is lost") {
			c.SetPolicy(nil, course.Lost, "its watch is")
			follows = nil
		}
		status := c.Status()
		for i := range 4 {
			name := fmt.Sprint("node-", i)
			step, _ := fleet.Step(name)
			got := Assigned(&status, follows, step)
			if want := c.Order(name).Target; got != want {
				r.Fatalf("%s of step %s is to have %q, and not %q; the status is %+v", name, policy.StepName(step), want, got,
					status)
			}
		}
	})
}

// TestAStepThatThePolicyDoesNotHave lets nothing new begin.
func TestAStepThatThePolicyDoesNotHave(t *testing.T) {
	s := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b", Step: "racks/1"}
	if got := Assigned(s, policyOf(t), rolloutpolicy.Step{}); got != "a" {
		t.Errorf("the revision is %q", got)
	}
	if got := Assigned(&v1alpha1.DaemonSetRolloutStatus{}, nil, rolloutpolicy.Step{}); got != "" {
		t.Errorf("before a rollout the revision is %q", got)
	}
}
