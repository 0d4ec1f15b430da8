package node

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A node says itself which addresses it has, and each write of it by anybody looks at them. Looking through the list for each of
// its entries would take so many steps that go test ends it, and shows where it was.
func TestLongListsOfANodeAreLookedAtOnce(t *testing.T) {
	const n = 1_000_000
	node := &corev1.Node{}
	node.Status.Addresses, node.Spec.Taints = make([]corev1.NodeAddress, n), make([]corev1.Taint, n)
	for i := range n {
		node.Status.Addresses[i] = corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprint(i)}
		node.Spec.Taints[i] = corev1.Taint{Key: fmt.Sprint("k", i), Effect: corev1.TaintEffectNoSchedule}
	}
	if errs := validateAddresses(node); len(errs) > 0 {
		t.Errorf("addresses: %d are wrong", len(errs))
	}
	if errs := validateTaints(node.Spec.Taints); len(errs) > 0 {
		t.Errorf("taints: %d are wrong", len(errs))
	}
	node.Status.Addresses[n-1], node.Spec.Taints[n-1] = node.Status.Addresses[0], node.Spec.Taints[0]
	if a, b := validateAddresses(node), validateTaints(node.Spec.Taints); len(a) != 1 || len(b) != 1 {
		t.Errorf("of one address and one taint that are there twice: %v, %v", a, b)
	}
}
