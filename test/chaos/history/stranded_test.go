package history

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
)

// A node that is well is stranded without its pod, whoever is dead; unless it must wait for a dead one.
func TestStranded(t *testing.T) {
	die := func(l *State, i int) { l.Nodes[i].Status.Conditions = nil }
	for _, c := range []struct {
		name   string
		change func(*State)
		want   string
	}{
		{"all is well", func(*State) {}, ""},
		{"a dead node has no pod", func(l *State) { die(l, 0); l.Pods = l.Pods[1:] }, ""},
		{"another node has none", func(l *State) { die(l, 0); l.Pods = l.Pods[:3] }, "node n4 is well and does not have the newest agent"},
		{"another node's is not ready", func(l *State) { die(l, 0); l.Pods[1].Status.Conditions = nil }, "node n2 is well and does not have the newest agent, has old-2 of t1"},
		{"another node's is old", func(l *State) { l.Pods[2].Labels["controller-revision-hash"] = "hash-t0" },
			"node n3 is well and does not have the newest agent, has old-3 of t1 which is available"},
		{"another node's is old, and the dead use up the limit of a DaemonSet without a policy", func(l *State) {
			die(l, 0)
			l.Pods[2].Labels["controller-revision-hash"] = "hash-t0"
		}, ""},
		{"another node's is old, and the dead, who are not desired, use up a share of the others", func(l *State) {
			die(l, 0)
			l.Nodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
			l.Pods[2].Labels["controller-revision-hash"] = "hash-t0"
			share := intstr.FromString("26%")
			l.Sets[0].Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &share
		}, ""},
		{"another node's is old, and a policy does not count the dead", func(l *State) {
			die(l, 0)
			l.Pods[2].Labels["controller-revision-hash"] = "hash-t0"
			l.Policies = []*v1alpha1.RolloutPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: l.Sets[0].Namespace}}}
		}, "node n3 is well and does not have the newest agent, has old-3 of t1 which is available"},
		{"it waits for the dead one of its rack", func(l *State) {
			die(l, 0)
			l.Nodes[0].Labels, l.Nodes[3].Labels = map[string]string{"rack": "r"}, map[string]string{"rack": "r"}
			l.Pods = l.Pods[:3]
			l.Policies = []*v1alpha1.RolloutPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: l.Sets[0].Namespace},
				Spec: v1alpha1.RolloutPolicySpec{Domains: []v1alpha1.Domain{{Key: "rack", MaxUnavailable: intstr.FromInt32(1)}}}}}
		}, ""},
		{"the rack has nobody dead", func(l *State) {
			l.Nodes[0].Labels, l.Nodes[3].Labels = map[string]string{"rack": "r"}, map[string]string{"rack": "r"}
			l.Pods = l.Pods[:3]
			l.Policies = []*v1alpha1.RolloutPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "p"},
				Spec: v1alpha1.RolloutPolicySpec{Domains: []v1alpha1.Domain{{Key: "rack", MaxUnavailable: intstr.FromInt32(1)}}}}}
		}, "node n4 is well and does not have the newest agent"},
		{"nearly all are dead", func(l *State) { die(l, 0); die(l, 1); l.Pods = []*corev1.Pod{} }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, last := atRest()
			c.change(&last)
			if got := strings.Join(Stranded(last, s.now), "\n"); got != c.want {
				t.Errorf("it says %q, want %q", got, c.want)
			}
		})
	}
}
