package kinds

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// topologyOfPods: a pod learns where its node is when it is bound, by whomever, and has the labels of its binding.
func topologyOfPods(t *testing.T, c cluster) {
	ctx, pods, nodes := t.Context(), c.Client.CoreV1().Pods(c.namespace), c.Client.CoreV1().Nodes()
	zone := map[string]string{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "disk": "ssd"}
	must(nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.namespace, Labels: zone}},
		metav1.CreateOptions{}))(t)
	pod := onePod("bound")
	pod.Spec.SchedulerName = "nobody"
	must(pods.Create(ctx, pod, metav1.CreateOptions{}))(t)
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "bound", Labels: map[string]string{"of": "binding",
			"topology.kubernetes.io/zone": "mine"}},
		Target: corev1.ObjectReference{Kind: "Node", Name: c.namespace},
	}
	err := pods.Bind(ctx, binding, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made := onePod("made")
	made.Spec.NodeName = c.namespace
	must(pods.Create(ctx, made, metav1.CreateOptions{}))(t)
	for name, of := range map[string]string{"bound": "binding", "made": ""} {
		labels := must(pods.Get(ctx, name, metav1.GetOptions{}))(t).Labels
		if labels["topology.kubernetes.io/zone"] != "z" || labels["topology.kubernetes.io/region"] != "r" ||
			labels["of"] != of || labels["disk"] != "" || labels["app"] == "" {
			t.Errorf("the labels of %s are %v", name, labels)
		}
	}
	err = nodes.Delete(ctx, c.namespace, metav1.DeleteOptions{})
	if err != nil {
		t.Error(err)
	}
}
