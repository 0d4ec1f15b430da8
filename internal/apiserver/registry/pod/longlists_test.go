package pod

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Each change of a pod compares its lists with those before. Looking through one for each entry of the other would take so many
// steps that go test ends it, and shows where it was.
func TestLongListsOfAPodAreComparedOnce(t *testing.T) {
	const n = 1_000_000
	tolerations, gates, statuses := make([]corev1.Toleration, n), make([]corev1.PodSchedulingGate, n), make([]corev1.ContainerStatus, n)
	for i := range n {
		name := fmt.Sprint("k", i)
		tolerations[i] = corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(i))}
		gates[i].Name, statuses[i].Name = name, name
		statuses[i].State.Terminated = &corev1.ContainerStateTerminated{}
	}
	at := field.NewPath("state")
	if errs := onlyMoreTolerations(tolerations, tolerations); len(errs) > 0 {
		t.Errorf("tolerations: %v", errs)
	}
	if errs := onlyMoreTolerations(tolerations[1:], tolerations); len(errs) != 1 {
		t.Errorf("one toleration less: %v", errs)
	}
	if errs := onlyFewerGates(gates, gates); len(errs) > 0 {
		t.Errorf("gates: %d are wrong", len(errs))
	}
	if errs := onlyFewerGates(gates, gates[1:]); len(errs) != 1 {
		t.Errorf("one gate more: %v", errs)
	}
	if errs := noResurrection(statuses, statuses, at, corev1.RestartPolicyNever); len(errs) > 0 {
		t.Errorf("statuses: %d are wrong", len(errs))
	}
	alive := append([]corev1.ContainerStatus{{Name: "k0"}}, statuses[1:]...)
	if errs := noResurrection(alive, statuses, at, corev1.RestartPolicyNever); len(errs) != 1 {
		t.Errorf("one that runs again: %v", errs)
	}
}
