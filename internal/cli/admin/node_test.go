package admin

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// After a revocation its user learns what keeps the node and its pods from going.
func TestRevokeTellsWhatHolds(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}}
	told := func() string {
		var out bytes.Buffer
		if err := tellWhatIsLeft(t.Context(), fake.NewClientset(node, pod), "n", &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := told(); strings.Contains(got, "Finalizers") {
		t.Errorf("nothing holds them, and it says:\n%s", got)
	}
	node.Finalizers, pod.Finalizers = []string{"example.com/a", "example.com/b"}, []string{"example.com/c"}
	got := told()
	for _, want := range []string{
		"hold up its deletion (example.com/a, example.com/b)", "everynode kubectl patch node n -p '{\"metadata\":{\"finalizers\":null}}' --type merge",
		"the end of its pod p (example.com/c)", "everynode kubectl -n team patch pod p",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it does not say %q:\n%s", want, got)
		}
	}
}
