package diagnosis

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// What a NodeStartup says is wrong is said here too, and that nobody opens a node whose NodeStartup is gone.
func TestNodesThatStart(t *testing.T) {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	s.Status.Conditions = []metav1.Condition{{Type: "Exclusive", Status: metav1.ConditionTrue, Message: "fine"},
		{Type: "DaemonSetsFound", Status: metav1.ConditionFalse, Message: "there is no DaemonSet kube-system/cni"}}
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	unseen := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "new", CreationTimestamp: metav1.NewTime(start)}}
	beside := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "beside"}}
	beside.Status.Conditions = []metav1.Condition{{Type: plan.Ordered, Status: metav1.ConditionTrue}}
	node := func(startup string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "of-" + startup}}
		n.Spec.Taints = []corev1.Taint{{Key: nodestartup.TaintKey, Value: startup + "_1"}}
		return n
	}
	held := func(node string) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
		p.Status.Conditions = []corev1.PodCondition{{Type: nodestartup.WaitsCondition, Status: corev1.ConditionTrue,
			Message: "Waiting for kube-system/cni-x until 12:02:00 UTC"}}
		return p
	}
	for name, c := range map[string]struct {
		cluster Cluster
		want    []string
	}{
		"nothing": {Cluster{Nodes: []*corev1.Node{{}}}, nil},
		"starting": {Cluster{Startups: []*v1alpha1.NodeStartup{s}, Nodes: []*corev1.Node{node("all")}},
			[]string{"there is no DaemonSet kube-system/cni"}},
		"unseen": {Cluster{Now: start.Add(2 * time.Minute), Startups: []*v1alpha1.NodeStartup{unseen}},
			[]string{"no controller has taken note of it"}},
		"not seen yet": {Cluster{Now: start.Add(time.Second), Startups: []*v1alpha1.NodeStartup{unseen}}, nil},
		"beside, and asked about": {Cluster{Startups: []*v1alpha1.NodeStartup{beside}, Webhooks: []Webhook{
			{Configuration: registration.Name, Name: registration.NodesWebhook}}}, nil},
		"beside, and left": {Cluster{Startups: []*v1alpha1.NodeStartup{beside}},
			[]string{"no webhook of Everynode is registered for nodes that join, so none is closed"}},
		"beside, and not known": {Cluster{Startups: []*v1alpha1.NodeStartup{beside},
			Hidden: []string{"mutatingwebhookconfigurations"}}, nil},
		"nobody's": {Cluster{Nodes: []*corev1.Node{node("gone")}},
			[]string{"1 node has the taint everynode.io/starting of a NodeStartup that is gone, and nobody takes it away: of-gone"}},
		"started again": {Cluster{Held: []*corev1.Pod{held("b"), held("a"), held("b")}}, []string{
			"1 pod there may not start yet. Waiting for kube-system/cni-x until 12:02:00 UTC",
			"2 pods there may not start yet. Waiting for kube-system/cni-x until 12:02:00 UTC"}},
		"unread": {Cluster{StartupsUnread: true, Nodes: []*corev1.Node{node("gone")}}, nil},
	} {
		f := findings{check: "startups"}
		startups(&f, &c.cluster)
		var got []string
		for _, one := range f.all {
			got = append(got, one.Message)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: [%s], want [%s]", name, strings.Join(got, "; "), strings.Join(c.want, "; "))
		}
	}
}
