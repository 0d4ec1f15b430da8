package taintnodesbycondition

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
)

func TestNewNodeIsTaintedOnce(t *testing.T) {
	plugin := New()
	if plugin.Handles(admission.Update) {
		t.Error("an update of a node would be tainted again")
	}
	other := corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoExecute}
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{other}}}
	attributes := admission.NewAttributesRecord(node, nil, corev1.SchemeGroupVersion.WithKind("Node"), "", "n",
		corev1.SchemeGroupVersion.WithResource("nodes"), "", admission.Create, nil, false, nil)
	for range 2 {
		if err := plugin.Admit(t.Context(), attributes, nil); err != nil {
			t.Fatal(err)
		}
	}
	taints := node.Spec.Taints
	if len(taints) != 2 || taints[0] != other || taints[1].Key != corev1.TaintNodeNotReady || taints[1].Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("taints %v", taints)
	}
}
