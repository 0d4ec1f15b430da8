package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/lives"
	"github.com/everynode/everynode/test/chaos/history/wish"
)

// guidedStory is one in which a policy with a canary, n1, and the rest holds. n2 and n3
// are of one rack.
type guidedStory struct {
	*story
	policy  *v1alpha1.RolloutPolicy
	rollout *v1alpha1.DaemonSetRollout
	pods    []*corev1.Pod
}

// guidedFleet has a fleet of t1, and a rollout to t2 whose canary has begun.
func guidedFleet(change ...func(*v1alpha1.RolloutPolicy)) *guidedStory {
	s := &guidedStory{story: began(unavailable(2))}
	for i, labels := range []map[string]string{{"fleet": "canary"}, {"rack": "r"}, {"rack": "r"}, {}} {
		name := fmt.Sprintf("n%d", i+1)
		s.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}})
	}
	s.policy = &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", UID: "policy"}, Spec: v1alpha1.RolloutPolicySpec{
		Waves:   []v1alpha1.Wave{{Name: "canary", Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"fleet": "canary"}}, Approval: v1alpha1.ApprovalManual}},
		Domains: []v1alpha1.Domain{{Key: "rack", MaxUnavailable: intstr.FromInt32(1)}},
	}}
	for _, c := range change {
		c(s.policy)
	}
	s.put(s.policy)
	s.put(s.revision(1))
	s.pods = s.fleet()
	s.rollout = &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "rollout", Labels: map[string]string{OwnerLabel: "agent"}}}
	s.status(v1alpha1.PhaseComplete, "t1", "t1", "")
	s.edit(template("t2"))
	s.put(s.revision(2))
	s.status(v1alpha1.PhaseProgressing, "t1", "t2", "canary")
	return s
}

func (s *guidedStory) status(phase v1alpha1.Phase, stable, target, step string) {
	st := &s.rollout.Status
	st.Phase, st.StableRevision, st.TargetRevision, st.Step = phase, "hash-"+stable, "hash-"+target, step
	st.Steps = []v1alpha1.StepStatus{{Name: "canary", Nodes: 1}, {Name: "rest", Nodes: 3}}
	s.put(s.rollout)
}

func (s *guidedStory) says(change func(*v1alpha1.DaemonSetRollout)) {
	change(s.rollout)
	s.put(s.rollout)
	s.record.Writes = append(s.record.Writes, Write{
		Kind: "DaemonSetRollout", Name: "agent", UID: "rollout", Acknowledged: true, Revision: s.record.Events[len(s.record.Events)-1].Revision, Wish: wish.Of(s.rollout),
	})
}

func (s *guidedStory) approves() {
	s.says(func(r *v1alpha1.DaemonSetRollout) {
		r.Spec.Approved = &v1alpha1.StepApproval{Revision: "hash-t2", Step: "canary"}
	})
}

// letsGo has somebody let the change go on without a policy.
func (s *guidedStory) letsGo() {
	s.says(func(r *v1alpha1.DaemonSetRollout) {
		r.Spec.Approved = &v1alpha1.StepApproval{Revision: "hash-t2", Step: v1alpha1.WithoutPolicy}
	})
}

// changes replaces the pod of a node by one of the newest template, as far as it comes up.
func (s *guidedStory) changes(node int, up bool) {
	s.takes(node)
	if p := s.pod(fmt.Sprintf("new-%d", node), fmt.Sprintf("n%d", node)); up {
		s.put(p)
		s.ready(p)
	}
}

func (s *guidedStory) takes(node int) {
	s.deleted(s.pods[node-1])
	s.gone(s.pods[node-1])
}

// failed says that t2 has failed, and that its nodes go back or stay.
func (s *guidedStory) failed(phase v1alpha1.Phase) {
	s.rollout.Status.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "hash-t2"}}
	s.status(phase, "t1", "t2", "canary")
}

// rest has the canary changed, approved, and the rest begun.
func (s *guidedStory) rest() *guidedStory {
	s.changes(1, true)
	s.approves()
	s.status(v1alpha1.PhaseProgressing, "t1", "t2", "rest")
	return s
}

// rests says that the rest has begun, so long after something.
func (s *guidedStory) rests(after time.Time, soaked time.Duration) {
	s.approves()
	s.rollout.Status.StepStarted = ptr.To(metav1.NewTime(after.Add(soaked)))
	s.status(v1alpha1.PhaseProgressing, "t1", "t2", "rest")
}

func soaking(soak string) func(*v1alpha1.RolloutPolicy) {
	return func(p *v1alpha1.RolloutPolicy) { p.Spec.Waves[0].Soak = v1alpha1.Duration(soak) }
}

// hurries takes all four nodes in a moment, the canary first.
func hurries(perMinute int32) *guidedStory {
	s := guidedFleet(func(p *v1alpha1.RolloutPolicy) {
		p.Spec.Domains, p.Spec.Waves[0].Approval, p.Spec.Pace.NodesPerMinute = nil, "", ptr.To(perMinute)
	})
	now := s.now
	for node := 1; node <= 4; node++ {
		s.now = now
		if node == 2 {
			s.status(v1alpha1.PhaseProgressing, "t1", "t2", "rest")
			s.now = now
		}
		s.changes(node, true)
	}
	return s
}

// comesBack has both nodes of a rack be changed, and then the canary, with so many revisions from write to write.
func comesBack(apart int64) *guidedStory {
	s := guidedFleet(func(p *v1alpha1.RolloutPolicy) {
		p.Spec.Domains = nil
		p.Spec.Waves = append(p.Spec.Waves, v1alpha1.Wave{Name: "racks", Each: "rack", MaxUnavailable: ptr.To(intstr.FromInt32(2))})
	})
	s.approves()
	s.rollout.Status.Steps = []v1alpha1.StepStatus{{Name: "canary"}, {Name: "racks/r", Nodes: 2}, {Name: "racks/(none)", Nodes: 1}}
	s.rollout.Status.Step = "racks/r"
	s.put(s.rollout)
	s.takes(2)
	s.takes(3)
	s.takes(1)
	turn := s.record.Events[len(s.record.Events)-6:]
	for i := range turn {
		turn[i].Revision = turn[0].Revision + int64(i)*apart
	}
	return s
}

// narrows has the next template want its daemon on no node, with the canary begun.
func narrows() *guidedStory {
	s := guidedFleet()
	s.edit(func(d *appsv1.DaemonSet) {
		template("t3")(d)
		d.Spec.Template.Spec.NodeSelector = map[string]string{"pool": "typo"}
	})
	s.put(s.revision(3))
	s.status(v1alpha1.PhaseProgressing, "t1", "t3", "canary")
	return s
}

// spreads has the canary taken away, somebody approve, and the rest begin.
func (s *guidedStory) spreads() *guidedStory {
	s.takes(1)
	s.says(func(r *v1alpha1.DaemonSetRollout) {
		r.Spec.Approved = &v1alpha1.StepApproval{Revision: "hash-t3", Step: "canary"}
	})
	s.status(v1alpha1.PhaseProgressing, "t1", "t3", "rest")
	return s
}

// grows has a wave behind the canary grow, and its first part begin, or not yet, though nothing of t2 was on the canary,
// which has no room for it.
func grows(step string) *guidedStory {
	s := guidedFleet(func(p *v1alpha1.RolloutPolicy) {
		p.Spec.Waves[0].Approval = ""
		p.Spec.Waves = append(p.Spec.Waves, v1alpha1.Wave{Name: "more", Nodes: &metav1.LabelSelector{}, Ramp: &v1alpha1.Ramp{}})
	})
	s.rollout.Status.Steps = []v1alpha1.StepStatus{{Name: "canary"}, {Name: "more/1", Nodes: 1}, {Name: "more/2", Nodes: 2}}
	s.rollout.Status.Step = step
	s.put(s.rollout)
	s.takes(2)
	return s
}

// overtakes has n2 be taken for t2, and t3 begin before its next pod is made, which is of t2 all the same, as is one on
// another node.
func overtakes(node int) *guidedStory {
	s := guidedFleet().rest()
	s.takes(2)
	late := s.pod("late", fmt.Sprintf("n%d", node))
	s.edit(template("t3"))
	s.put(s.revision(3))
	s.status(v1alpha1.PhaseProgressing, "t1", "t3", "canary")
	if node != 2 {
		s.deleted(s.pods[node-1]) // by a user
		s.record.Writes = append(s.record.Writes, Write{Kind: "Pod", UID: s.pods[node-1].UID, Delete: true})
		s.gone(s.pods[node-1])
	}
	s.put(late)
	return s
}

// returns has t2 work on n1 and some other nodes, and break others; then all on which it works go back at once.
func returns(works, broken []int) *guidedStory {
	s := guidedFleet(func(p *v1alpha1.RolloutPolicy) { p.Spec.Domains = nil }).rest()
	for _, n := range works {
		s.changes(n, true)
	}
	for _, n := range broken {
		s.changes(n, false)
	}
	s.failed(v1alpha1.PhaseRolledBack)
	for _, n := range append([]int{1}, works...) {
		for _, e := range slices.Backward(s.record.Events) {
			if p, ok := e.Object.(*corev1.Pod); ok && p.Name == fmt.Sprintf("new-%d", n) {
				s.deleted(p.DeepCopy())
				s.gone(p)
				break
			}
		}
	}
	return s
}

// TestHistoriesWithAPolicy tells short histories, good and bad. Each bad one breaks one
// rule.
func TestHistoriesWithAPolicy(t *testing.T) {
	own := func(p *v1alpha1.RolloutPolicy) { p.Spec.Waves[0].MaxUnavailable = ptr.To(intstr.FromInt32(1)) }
	everywhere := func(p *v1alpha1.RolloutPolicy) {
		p.Spec.Waves, p.Spec.Domains = []v1alpha1.Wave{{Name: "all", Each: "none", MaxUnavailable: ptr.To(intstr.FromInt32(1))}}, nil
	}
	retry := func(r *v1alpha1.DaemonSetRollout) { r.Spec.Retry = &v1alpha1.Retry{Revision: "hash-t2", Count: 1} }
	for _, c := range []struct {
		name string
		tell func() *guidedStory
		want string
	}{
		{"step by step", func() *guidedStory {
			s := guidedFleet(own).rest()
			s.changes(2, true)
			s.changes(3, true)
			s.changes(4, true)
			return s
		}, ""},
		{"a pod before the node's step", func() *guidedStory {
			s := guidedFleet()
			s.deleted(s.pods[1]) // by a user
			s.record.Writes = append(s.record.Writes, Write{Kind: "Pod", Name: "old-2", UID: "old-2", Delete: true})
			s.gone(s.pods[1])
			s.put(s.pod("new", "n2"))
			return s
		}, Assigned + `: pod new on node n2 was made of template "t2", which was not the node's`},
		{"a part of a ramp behind a canary that has no room", func() *guidedStory { return grows("more/1") }, ""},
		{"a part of a ramp that has not begun", func() *guidedStory { return grows("canary") },
			Assigned + ": node n2 lost pod old-2 of the stable template before its step began"},
		{"a node that another change overtakes", func() *guidedStory { return overtakes(2) }, ""},
		{"a pod of the change before on a node that was not taken", func() *guidedStory { return overtakes(4) },
			Assigned + `: pod late on node n4 was made of template "t2", which was not the node's`},
		{"a pod that others deleted, and a later one of its name", func() *guidedStory {
			s := guidedFleet()
			s.record.Told = true
			s.deleted(s.pods[1])
			s.edit(template("t3"))
			s.record.Calls = append(s.record.Calls, Call{Delete: true, Pod: s.pods[1].Name, Since: s.next() - 1})
			return s
		}, ""},
		{"a pod of a DaemonSet that has just left its policy for OnDelete", func() *guidedStory {
			s := guidedFleet()
			s.gone(s.policy)
			s.deleted(s.pods[1]) // by a user
			s.record.Writes = append(s.record.Writes, Write{Kind: "Pod", Name: "old-2", UID: "old-2", Delete: true})
			s.gone(s.pods[1])
			s.set.Generation++
			onDelete(s.set)
			s.put(s.set)
			s.wrote(s.set)
			s.put(s.pod("new", "n2"))
			edited, made := s.record.Events[len(s.record.Events)-2], &s.record.Events[len(s.record.Events)-1]
			made.Revision = edited.Revision + 1 // so that it may know either
			return s
		}, ""},
		{"a pod taken before the node's step", func() *guidedStory { s := guidedFleet(); s.takes(2); return s }, Assigned + ": node n2 lost pod old-2 of the stable template before its step began"},
		{"a step that the status does not tell of yet", func() *guidedStory {
			s := guidedFleet()
			s.changes(1, true)
			s.approves()
			s.changes(2, true)
			return s
		}, ""},
		{"a step that nobody approved", func() *guidedStory {
			s := guidedFleet()
			s.changes(1, true)
			s.status(v1alpha1.PhaseProgressing, "t1", "t2", "rest")
			return s
		}, Early + ": rollout agent went from step canary to rest, and nobody had approved step canary"},
		{"a step that somebody approved in the change before", func() *guidedStory {
			s := guidedFleet()
			s.rollout.Status.Change = 3
			s.approves()
			s.changes(1, true)
			s.status(v1alpha1.PhaseProgressing, "t1", "t2", "rest")
			return s
		}, Early + ": rollout agent went from step canary to rest, and nobody had approved step canary"},
		{"a step that somebody approved in the change", func() *guidedStory {
			s := guidedFleet()
			s.rollout.Status.Change = 3
			s.says(func(r *v1alpha1.DaemonSetRollout) {
				r.Spec.Approved = &v1alpha1.StepApproval{Revision: "hash-t2", Step: "canary", Change: 3}
			})
			s.changes(1, true)
			s.status(v1alpha1.PhaseProgressing, "t1", "t2", "rest")
			return s
		}, ""},
		{"a step that the status does not tell of, and that somebody approved in the change before", func() *guidedStory {
			s := guidedFleet()
			s.changes(1, true)
			s.approves()
			s.rollout.Status.Change = 3
			s.status(v1alpha1.PhaseProgressing, "t1", "t2", "canary")
			s.takes(2)
			return s
		}, Assigned + ": node n2 lost pod old-2 of the stable template before its step began"},
		{"a pod taken when the policy is gone, and the change before was let go on without", func() *guidedStory {
			s := guidedFleet()
			s.letsGo()
			s.rollout.Status.Change = 3
			s.status(v1alpha1.PhaseProgressing, "t1", "t2", "canary")
			s.gone(s.policy)
			s.takes(1)
			return s
		}, Still},
		{"a failed template again", func() *guidedStory {
			s := guidedFleet()
			s.takes(1)
			s.failed(v1alpha1.PhaseRolledBack)
			s.put(s.pod("new", "n1"))
			return s
		}, Failed},
		{"a failed template that somebody wants tried again", func() *guidedStory {
			s := guidedFleet()
			s.takes(1)
			s.failed(v1alpha1.PhaseRolledBack)
			s.says(retry)
			s.put(s.pod("new", "n1"))
			return s
		}, ""},
		{"a pod taken while it is paused", func() *guidedStory {
			s := guidedFleet()
			s.says(func(r *v1alpha1.DaemonSetRollout) { r.Spec.Paused = true })
			s.takes(1)
			return s
		}, Still + ": node n1 was changed though the rollout is paused"},
		{"a pod taken while it is halted", func() *guidedStory {
			s := guidedFleet()
			s.failed(v1alpha1.PhaseHalted)
			s.takes(1)
			return s
		}, Still + ": node n1 was changed though the rollout is halted"},
		{"a pod taken when the policy is gone, and somebody has let it go on without", func() *guidedStory {
			s := guidedFleet()
			s.gone(s.policy)
			s.letsGo()
			s.approves()
			s.takes(1)
			return s
		}, ""},
		{"a pod taken as soon as the policy is gone, of a rollout that somebody had let go on without", func() *guidedStory {
			s := guidedFleet()
			s.letsGo()
			s.gone(s.policy)
			s.takes(1)
			return s
		}, ""},
		{"a pod taken when somebody has let it go on without, and a policy is there again and gone", func() *guidedStory {
			s := guidedFleet()
			s.gone(s.policy)
			s.letsGo()
			p := s.policy.DeepCopy()
			p.UID = "again"
			s.put(p)
			s.approves()
			s.gone(p)
			s.rollout.Status.Message = "its policy was deleted"
			s.put(s.rollout)
			s.takes(1)
			return s
		}, Still + ": node n1 was changed though the policy was gone"},
		{"a pod taken when the policy is gone", func() *guidedStory { s := guidedFleet(); s.gone(s.policy); s.takes(1); return s }, Still + ": node n1 was changed though the policy was gone"},
		{"a pod taken when the policy cannot be followed", func() *guidedStory {
			s := guidedFleet()
			s.policy.Spec.Windows = []v1alpha1.Window{{From: "00:00", To: "24:00", TimeZone: "Atlantis"}}
			s.put(s.policy)
			s.record.Writes = append(s.record.Writes, Write{Kind: "RolloutPolicy", Name: "policy", UID: "policy", Wish: wish.Of(s.policy)})
			s.takes(1)
			return s
		}, Still + ": node n1 was changed though the policy cannot be followed"},
		{"two of a rack", func() *guidedStory { s := guidedFleet().rest(); s.takes(2); s.takes(3); return s }, Limits + ": node n3 was changed (pod old-3); that makes 2 nodes of rack=r"},
		{"three at once", func() *guidedStory {
			s := guidedFleet(func(p *v1alpha1.RolloutPolicy) { p.Spec.Domains = nil }).rest()
			s.takes(2)
			s.takes(3)
			s.takes(4)
			return s
		}, Limits + ": node n4 was changed (pod old-4); that makes 3 nodes of its step and 3 in all"},
		{"two at once in a step that allows one", func() *guidedStory {
			s := guidedFleet(everywhere)
			s.rollout.Status.Step = "all/(none)"
			s.rollout.Status.Steps = []v1alpha1.StepStatus{{Name: "all/(none)", Nodes: 4}}
			s.put(s.rollout)
			s.takes(2)
			s.takes(4)
			return s
		}, Limits + ": node n4 was changed (pod old-4); that makes 2 nodes of its step and 2 in all by our own doing (n2, n4), the step allows 1"},
		{"a canary that comes back in the turn of a step with a limit of its own", func() *guidedStory { return comesBack(1) }, ""},
		{"a canary that comes back after the turn of a step with a limit of its own", func() *guidedStory { return comesBack(2 * lag) },
			Limits + ": node n1 was changed (pod old-1); that makes 1 nodes of its step and 3 in all by our own doing (n1, n2, n3), the step allows 0 and the DaemonSet 2"},
		{"a step of its own that a new policy gives it", func() *guidedStory {
			s := guidedFleet(func(p *v1alpha1.RolloutPolicy) { p.Spec.Domains = nil }).rest()
			s.takes(2)
			s.takes(3)
			s.rollout.Status.Steps = []v1alpha1.StepStatus{{Name: "canary", Nodes: 1}, {Name: "racks/r", Nodes: 2}, {Name: "racks/(none)", Nodes: 1}}
			s.rollout.Status.Step = "racks/(none)"
			s.put(s.rollout)
			s.policy.Spec.Waves = append(s.policy.Spec.Waves, v1alpha1.Wave{Name: "racks", Each: "rack", MaxUnavailable: ptr.To(intstr.FromInt32(1))})
			s.put(s.policy)
			s.record.Writes = append(s.record.Writes, Write{Kind: "RolloutPolicy", Name: "policy", UID: "policy", Wish: wish.Of(s.policy)})
			s.takes(4)
			// The controller may have seen the policy of before, or this one.
			edited, taken := &s.record.Events[len(s.record.Events)-3], s.record.Events[len(s.record.Events)-2]
			edited.Revision = taken.Revision - 1
			return s
		}, ""},
		{"nodes that the failed template has broken, on the way back", func() *guidedStory { return returns([]int{4}, []int{2, 3}) }, ""},
		{"more than may be on the way back", func() *guidedStory { return returns([]int{3, 4}, []int{2}) },
			Limits + ": node n4 was changed (pod new-4); that makes 2 nodes of its step and 3 in all by our own doing (n1, n3, n4)"},
		{"a node that dies is not our doing", func() *guidedStory {
			s := guidedFleet(func(p *v1alpha1.RolloutPolicy) { p.Spec.Domains = nil }).rest()
			s.takes(2)
			dead := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", UID: "n2", Labels: map[string]string{"rack": "r"}}}
			s.takes(3)
			s.put(dead)
			s.takes(4)
			return s
		}, ""},
		{"a pod of the node's own template taken", func() *guidedStory {
			s := guidedFleet()
			s.takes(1)
			p := s.runs("new", "n1")
			s.status(v1alpha1.PhaseComplete, "t2", "t2", "")
			s.deleted(p)
			return s
		}, Reason + ": pod new on node n1 was deleted, though its template was the newest"},
		{"a step after its soak", func() *guidedStory {
			s := guidedFleet(soaking("30s"))
			s.takes(1)
			s.runs("new-1", "n1")
			s.rests(s.now.Add(-10*time.Second), 30*time.Second)
			return s
		}, ""},
		{"a step before its soak", func() *guidedStory {
			s := guidedFleet(soaking("30s"))
			s.takes(1)
			s.runs("new-1", "n1")
			s.rests(s.now.Add(-10*time.Second), 29*time.Second)
			return s
		}, Soak + ": rollout agent began step rest at"},
		{"a step before the soak of a node that failed", func() *guidedStory {
			s := guidedFleet(soaking("30s"))
			s.takes(1)
			s.runs("new-1", "n1")
			s.rollout.Status.Failures = &v1alpha1.Failures{Revision: "hash-t2", Nodes: []string{"n1"}}
			s.rests(s.now.Add(-10*time.Second), 29*time.Second)
			return s
		}, ""},
		{"a step before the soak of a node that is out of order", func() *guidedStory {
			s := guidedFleet(soaking("30s"))
			s.takes(1)
			s.runs("new-1", "n1")
			s.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1"}})
			s.rests(s.now.Add(-10*time.Second), 29*time.Second)
			return s
		}, ""},
		{"a step before the soak of a node that has gone", func() *guidedStory {
			s := guidedFleet(soaking("30s"))
			s.takes(1)
			s.runs("new-1", "n1")
			s.gone(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n1"}})
			s.rests(s.now.Add(-10*time.Second), 29*time.Second)
			return s
		}, ""},
		{"within the pace", func() *guidedStory { return hurries(60) }, ""},
		{"faster than the pace", func() *guidedStory { return hurries(1) }, Pace + ": node n4 was changed (pod old-4), the 4. of policy policy in 0s; 1 in a minute are allowed"},
		{"taken away step by step", func() *guidedStory { s := narrows().spreads(); s.takes(2); s.takes(3); return s }, ""},
		{"taken away before its step", func() *guidedStory { s := narrows(); s.takes(2); return s }, Assigned + ": node n2 lost pod old-2 of the stable template before its step began"},
		{"taken away while it is paused", func() *guidedStory {
			s := narrows()
			s.says(func(r *v1alpha1.DaemonSetRollout) { r.Spec.Paused = true })
			s.takes(1)
			return s
		}, Still + ": node n1 was changed though the rollout is paused"},
		{"taken away from two of a rack at once", func() *guidedStory {
			s := narrows().spreads()
			s.deleted(s.pods[1])
			s.deleted(s.pods[2])
			return s
		}, Limits + ": node n3 was changed (pod old-3); that makes 2 nodes of rack=r"},
		{"taken away because the node changed", func() *guidedStory {
			s := narrows()
			s.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", UID: "n2", Labels: map[string]string{"rack": "r"}}, Spec: corev1.NodeSpec{
				Taints: []corev1.Taint{{Key: "off", Effect: corev1.TaintEffectNoExecute}},
			}})
			s.takes(2)
			return s
		}, ""},
		{"its own template does not let it stay, the newest would", func() *guidedStory {
			s := guidedFleet()
			s.edit(func(d *appsv1.DaemonSet) {
				template("t3")(d)
				d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: "off", Operator: corev1.TolerationOpExists}}
			})
			s.put(s.revision(3))
			s.status(v1alpha1.PhaseProgressing, "t1", "t3", "canary")
			s.put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2", UID: "n2", Labels: map[string]string{"rack": "r"}}, Spec: corev1.NodeSpec{
				Taints: []corev1.Taint{{Key: "off", Effect: corev1.TaintEffectNoExecute}},
			}})
			s.takes(2)
			s.changes(1, true)
			s.says(func(r *v1alpha1.DaemonSetRollout) {
				r.Spec.Approved = &v1alpha1.StepApproval{Revision: "hash-t3", Step: "canary"}
			})
			s.status(v1alpha1.PhaseProgressing, "t1", "t3", "rest")
			s.takes(3) // of the same rack
			return s
		}, ""},
		{"made on a node that changed when the server had just restarted", func() *guidedStory {
			s := guidedFleet()
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n9", UID: "n9"}}
			s.put(n)
			n = n.DeepCopy()
			n.Spec.Taints = []corev1.Taint{{Key: "off", Effect: corev1.TaintEffectNoExecute}}
			s.put(n)
			p := s.pod("new", "n9")
			p.Labels, p.Annotations = s.pods[1].Labels, s.pods[1].Annotations // of the stable template
			s.put(p)
			return s
		}, ""},
		{"made where its template wants none", func() *guidedStory {
			s := narrows()
			s.takes(1)
			s.put(s.pod("new", "n1"))
			return s
		}, Placed + `: pod new was made on node n1, which its template "t3" does not select`},
		{"nobody else changes what people want", func() *guidedStory { s := guidedFleet(); s.rollout.Spec.Paused = true; s.put(s.rollout); return s }, Writes + ": agent was changed by nobody's wish"},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, c.tell(), c.want)
		})
	}
}

// expect judges a history that breaks one rule, or none.
func expect(t *testing.T, s *guidedStory, want string) {
	t.Helper()
	var got []string
	for _, v := range violations(s.record) {
		got = append(got, v.Rule+": "+v.Message)
	}
	text := strings.Join(got, "\n")
	if want == "" && text != "" || !strings.HasPrefix(text, want) || len(got) > 1 {
		t.Errorf("the judge says\n%s\nwant\n%s", text, want)
	}
}

// Where no revision is stable and steps are asked for, another that has not failed may be made meanwhile.
func TestWhatStandsInForTheStableRevision(t *testing.T) {
	failed := []v1alpha1.FailedRevision{{Revision: "hash-t1"}}
	for name, test := range map[string]struct {
		status v1alpha1.DaemonSetRolloutStatus
		is     string
		want   bool
	}{
		"none is stable":         {v1alpha1.DaemonSetRolloutStatus{Step: "canary"}, "hash-t1", true},
		"it has failed":          {v1alpha1.DaemonSetRolloutStatus{Step: "canary", FailedRevisions: failed}, "hash-t1", false},
		"one of it has failed":   {v1alpha1.DaemonSetRolloutStatus{Step: "canary", FailedRevisions: failed}, "", false},
		"with other variants":    {v1alpha1.DaemonSetRolloutStatus{Step: "canary", FailedRevisions: failed}, "hash-t1_v", true},
		"no steps are asked for": {v1alpha1.DaemonSetRolloutStatus{}, "hash-t1", false},
		"another is stable":      {v1alpha1.DaemonSetRolloutStatus{Step: "canary", StableRevision: "hash-t0"}, "hash-t1", false},
	} {
		test.status.TargetRevision = "hash-t2"
		j := &judge{markOfHash: map[string]string{"hash-t0": "t0", "hash-t1": "t1", "hash-t2": "t2"}}
		g := &guidance{marks: []string{"t2"}, rollouts: []*v1alpha1.DaemonSetRollout{{Status: test.status}}}
		if got := j.mayHave(decision{}, g, "t1", test.is); got != test.want {
			t.Errorf("%s: a pod of the one before may be made: %t", name, got)
		}
	}
}

// A node that joined again is where it is now.
func TestANodeThatJoinedAgain(t *testing.T) {
	version := func(from int64, uid types.UID) *track {
		return &track{Versions: []lives.Version{{From: from, Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: uid}}}}}
	}
	old, now := version(1, "old"), version(30, "now")
	old.Gone = 20
	j := &judge{nodes: map[string][]*track{"n": {old, now}}}
	for _, c := range []struct {
		low, event int64
		want       string
	}{
		{50, 100, "now"}, {20, 100, "now"}, {19, 100, "old now"}, {10, 100, "old now"},
		{22, 29, "old"}, // who has not heard that it is gone goes by what it was
	} {
		var got []string
		for _, n := range j.nodeOf(decision{at: place{node: "n"}, event: c.event}, c.low) {
			got = append(got, string(n.UID))
		}
		if is := strings.Join(got, " "); is != c.want {
			t.Errorf("from %d to %d it was %q, want %q", c.low, c.event, is, c.want)
		}
	}
}
