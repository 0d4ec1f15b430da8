package fit

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkDaemonPods measures questions about one node by pods that name it, and what a pod costs that comes and goes:
// a plain pod, the same while a DaemonSet runs on every node whose pods want no other of their own on their host, and
// that DaemonSet's own pods. None may depend on the number of nodes.
func BenchmarkDaemonPods(b *testing.B) {
	for _, nodes := range []int{100, 5000, 50000} {
		c := NewCluster()
		name := func(i int) string { return fmt.Sprintf("n%d", i) }
		for i := range nodes {
			c.SetNode(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: name(i), Labels: map[string]string{corev1.LabelHostname: name(i)}},
				Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
					"cpu": resource.MustParse("64"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110"),
				}},
			})
		}
		empty := name(nodes / 2)
		measure := func(what string, object *corev1.Pod) {
			pod := NewPod(object)
			b.Run(fmt.Sprintf("ask/%s/nodes=%d", what, nodes), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if reasons := c.Ask(pod).First(c.Node(empty), Trial{}); len(reasons) > 0 {
						b.Fatal(reasons)
					}
				}
			})
			b.Run(fmt.Sprintf("come and go/%s/nodes=%d", what, nodes), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c.Assume(pod, empty)
					c.DeletePod(pod.UID)
				}
			})
		}
		measure("plain", daemonPod("plain", empty, false))
		for i := range nodes {
			if name(i) != empty {
				pod := daemonPod("own-"+name(i), name(i), true)
				pod.Spec.NodeName = name(i)
				c.SetPod(pod)
			}
		}
		measure("plain beside repelling", daemonPod("plain", empty, false))
		measure("repelling", daemonPod("own", empty, true))
	}
}

func daemonPod(name, node string, alone bool) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name),
			Labels: map[string]string{"app": "plain"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}}},
			Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In",
						Values: []string{node}}},
				}}},
			}},
		},
	}
	if alone {
		pod.Labels["app"] = "own"
		pod.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "own"}},
		}}}
	}
	return pod
}
