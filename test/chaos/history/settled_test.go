package history

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/test/chaos/history/wish"
)

func metaNamed(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name)}
}

func percent(unavailable, surge string) func(*appsv1.DaemonSet) {
	return func(d *appsv1.DaemonSet) {
		rolling(0, 0)(d)
		d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString(unavailable))
		d.Spec.UpdateStrategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromString(surge))
	}
}

// atRest is a fleet of four nodes on which all is well.
func atRest() (*story, State) {
	s := began()
	s.put(s.revision(1))
	s.fleet()
	s.set.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: 1, DesiredNumberScheduled: 4, CurrentNumberScheduled: 4, NumberReady: 4, UpdatedNumberScheduled: 4, NumberAvailable: 4,
	}
	s.put(s.set)
	last := s.record.Last()
	slices.SortFunc(last.Pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(last.Nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return s, last
}

func TestUnsettled(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*story, *State)
		want   []string
	}{
		{"all is well", func(*story, *State) {}, nil},
		{"a pod is missing", func(_ *story, l *State) { l.Pods = l.Pods[1:] }, []string{"DaemonSet agent: node n1 has no pod", "DaemonSet agent: the status says"}},
		{"two pods", func(s *story, l *State) {
			p := s.pod("more", "n1")
			p.Status = l.Pods[0].Status
			l.Pods = append(l.Pods, p)
		}, []string{"DaemonSet agent: node n1 has"}},
		{"a pod is not ready", func(_ *story, l *State) { l.Pods[0].Status.Conditions = nil },
			[]string{"DaemonSet agent: pod old-1 on node n1 is not available", "DaemonSet agent: the status says"}},
		{"a pod that has not been ready for long enough", func(s *story, l *State) {
			l.Sets[0].Spec.MinReadySeconds = 3600
		}, []string{"DaemonSet agent: pod old-1 on node n1 is not available", "DaemonSet agent: pod old-2", "DaemonSet agent: pod old-3", "DaemonSet agent: pod old-4", "DaemonSet agent: the status says"}},
		{"an old template", func(_ *story, l *State) { l.Pods[0].Labels[appsv1.ControllerRevisionHashLabelKey] = "older" },
			[]string{"DaemonSet agent: pod old-1 on node n1 has an old template", "DaemonSet agent: the status says"}},
		{"the newest hash and another template", func(_ *story, l *State) { l.Pods[0].Annotations[TemplateMark] = "t9" },
			[]string{"DaemonSet agent: pod old-1 on node n1 carries the newest hash and another template"}},
		{"a status that lags", func(_ *story, l *State) { l.Sets[0].Status.NumberAvailable = 3 }, []string{"DaemonSet agent: the status says"}},
		{"a generation that was not observed", func(_ *story, l *State) { l.Sets[0].Generation = 2 }, []string{"DaemonSet agent: the status says generation 1"}},
		{"a node that is not for it", func(_ *story, l *State) {
			l.Nodes[0].Spec.Taints = []corev1.Taint{{Key: offKey, Effect: corev1.TaintEffectNoExecute}}
		}, []string{"DaemonSet agent: node n1 is not for it and has old-1", "DaemonSet agent: the status says"}},
		{"a pod may stay where none would be started", func(_ *story, l *State) {
			l.Nodes[0].Spec.Taints = []corev1.Taint{{Key: offKey, Effect: corev1.TaintEffectNoSchedule}}
			l.Sets[0].Status = appsv1.DaemonSetStatus{
				ObservedGeneration: 1, DesiredNumberScheduled: 3, CurrentNumberScheduled: 3, NumberReady: 3, UpdatedNumberScheduled: 3, NumberAvailable: 3, NumberMisscheduled: 1,
			}
		}, nil},
		{"a pod that was not bound before its node was tainted", func(_ *story, l *State) {
			l.Nodes[0].Spec.Taints = []corev1.Taint{{Key: offKey, Effect: corev1.TaintEffectNoSchedule}}
			l.Pods[0].Status = corev1.PodStatus{Phase: corev1.PodPending}
			l.Sets[0].Status = appsv1.DaemonSetStatus{
				ObservedGeneration: 1, DesiredNumberScheduled: 3, CurrentNumberScheduled: 3, NumberReady: 3, UpdatedNumberScheduled: 3, NumberAvailable: 3, NumberMisscheduled: 1,
			}
		}, nil},
		{"a silent node", func(_ *story, l *State) {
			l.Nodes[0].Status.Conditions[0].Status = corev1.ConditionUnknown
			l.Nodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
		}, []string{"node n1 is not ready", "node n1 still has taint"}},
		{"a pod that does not end", func(_ *story, l *State) { l.Pods[0].DeletionTimestamp = &metav1.Time{} }, []string{"pod old-1 is still on its way out"}},
		{"a pod of nobody", func(s *story, l *State) {
			p := s.pod("leaked", "n1")
			p.OwnerReferences[0].UID = "gone"
			l.Pods = append(l.Pods, p)
		}, []string{"pod leaked belongs to a DaemonSet that is gone"}},
		{"a pod that was not adopted", func(s *story, l *State) {
			p := s.pod("stray", "n1")
			p.OwnerReferences = nil
			l.Pods = append(l.Pods, p)
		}, []string{"pod stray was not adopted by agent"}},
		{"a pod on a node that is gone", func(s *story, l *State) { l.Pods = append(l.Pods, s.pod("lost", "n9")) },
			[]string{"DaemonSet agent: has 1 pods that are on none of the nodes", "pod lost is on a node that is gone"}},
		{"a revision of nobody", func(s *story, l *State) {
			r := s.revision(9)
			r.OwnerReferences[0].UID = "gone"
			l.Revisions = append(l.Revisions, r)
		}, []string{"revision agent-t1 belongs to a DaemonSet that is gone"}},
		{"too many revisions", func(s *story, l *State) {
			l.Sets[0].Spec.RevisionHistoryLimit = ptr.To(int32(0))
			template("t0")(s.set)
			l.Revisions = append(l.Revisions, s.revision(0))
		}, []string{"DaemonSet agent: keeps 1 old revisions that no pod has, its limit is 0"}},
		{"two newest revisions with one number", func(s *story, l *State) {
			template("t0")(s.set)
			l.Revisions = append(l.Revisions, s.revision(1))
		}, []string{"DaemonSet agent: has two newest revisions, number 1: agent-t0 and agent-t1"}},
		{"two old revisions with one number, adopted with it", func(s *story, l *State) {
			l.Revisions[0].Revision = 3
			for _, mark := range []string{"t8", "t9"} {
				template(mark)(s.set)
				l.Revisions = append(l.Revisions, s.revision(2))
			}
		}, nil},
		{"a DaemonSet that does not go", func(_ *story, l *State) { l.Sets[0].DeletionTimestamp = &metav1.Time{} },
			[]string{"DaemonSet agent: is still on its way out"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, last := atRest()
			c.change(s, &last)
			got := Unsettled(last, s.now)
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("got %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}

const offKey = wish.UserKey + "off"

// Without nodes a rollout is complete with the newest revision as its target, which is stable only if it has run.
func TestARolloutWithoutNodesIsSettled(t *testing.T) {
	for target, want := range map[string]int{"hash-t1": 0, "hash-t0": 1} {
		for _, stable := range []string{"", "hash-t0", "hash-t1"} {
			_, l := atRest()
			l.Nodes = nil
			r := &v1alpha1.DaemonSetRollout{Status: v1alpha1.DaemonSetRolloutStatus{StableRevision: stable, TargetRevision: target}}
			if got := l.complete(l.Sets[0], r); len(got) != want {
				t.Errorf("stable %q, target %q: %q", stable, target, got)
			}
		}
	}
}
