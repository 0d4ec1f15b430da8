package daemonset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhichNodeUpdatesMatter(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(*corev1.Node)
		drops bool
		// health tells that rollouts must hear of it.
		health bool
	}{
		"heartbeat": {func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
		}, true, false},
		"not ready": {func(n *corev1.Node) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}
		}, true, true},
		"room":        {func(n *corev1.Node) { n.Status.Allocatable = corev1.ResourceList{"cpu": apiresource.MustParse("1")} }, true, false},
		"cordoned":    {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true, true},
		"annotations": {func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, true, false},
		"labels":      {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, false, true},
		"taints":      {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}} }, false, true},
	} {
		old := testNode("n1")
		old.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n := old.DeepCopy()
		c.edit(n)
		if got := ignoreNode(old, n); got != c.drops {
			t.Errorf("%s: ignored is %v, want %v", name, got, c.drops)
		}
		if got := ignoreNodeInOrder(old, n); got == c.health {
			t.Errorf("%s: with rollouts ignored is %v", name, got)
		}
	}
}

func TestWhichPodUpdatesMatter(t *testing.T) {
	group := "apps"
	owned := func(kind, version string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
		if kind != "" {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: group + "/v1", Kind: kind, UID: "owner", Controller: &yes}}
		}
		return p
	}
	same := owned("DaemonSet", "1")
	group = "apps.example.com"
	foreign := owned("DaemonSet", "2")
	group = "apps"
	for name, c := range map[string]struct {
		old, now *corev1.Pod
		drops    bool
	}{
		"the same object":       {same, same, true},
		"a copy from a list":    {same, owned("DaemonSet", "1"), false},
		"a vendor's DaemonSet":  {foreign, foreign.DeepCopy(), true},
		"ours":                  {owned("DaemonSet", "1"), owned("DaemonSet", "2"), false},
		"nobody's":              {owned("", "1"), owned("", "2"), false},
		"another controller's":  {owned("ReplicaSet", "1"), owned("ReplicaSet", "2"), true},
		"ours, now another's":   {owned("DaemonSet", "1"), owned("ReplicaSet", "2"), false},
		"another's, now nobody": {owned("ReplicaSet", "1"), owned("", "2"), false},
	} {
		if got := ignorePod(c.old, c.now); got != c.drops {
			t.Errorf("%s: ignored is %v, want %v", name, got, c.drops)
		}
	}
}
