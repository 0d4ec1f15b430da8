package admit

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPlacementThatMustBeApproved(t *testing.T) {
	node := func(zone string, taints ...corev1.Taint) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: zone, Labels: map[string]string{"zone": zone}}, Spec: corev1.NodeSpec{Taints: taints},
		}
	}
	fenced := corev1.Taint{Key: "fenced", Effect: corev1.TaintEffectNoSchedule}
	emptied := corev1.Taint{Key: "emptied", Effect: corev1.TaintEffectNoExecute}
	nodes := []*corev1.Node{node("a"), node("a"), node("b"), node("b", fenced), node("b", emptied)}
	everywhere, tolerant := &corev1.PodSpec{}, &corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}
	inA := &corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"}}
	inB := &corev1.PodSpec{NodeSelector: map[string]string{"zone": "b"}}
	for name, c := range map[string]struct {
		from, to *corev1.PodSpec
		says     string
	}{
		"another image":     {everywhere, &corev1.PodSpec{Containers: []corev1.Container{{Image: "agent:2"}}}, ""},
		"another zone":      {inA, inB, "2 nodes would lose the daemon and 1 would get it"},
		"fewer":             {everywhere, inA, "2 nodes would lose the daemon and 0 would get it"}, // A pod may be left behind the fence.
		"more":              {inA, everywhere, "0 nodes would lose the daemon and 1 would get it"},
		"past taints":       {everywhere, tolerant, "0 nodes would lose the daemon and 2 would get it"},
		"taints hold again": {tolerant, everywhere, "1 nodes would lose the daemon and 0 would get it"},
		"nowhere":           {inA, &corev1.PodSpec{NodeSelector: map[string]string{"zone": "c"}}, "2 nodes would lose the daemon and 0 would get it"},
	} {
		t.Run(name, func(t *testing.T) {
			m := Moves{From: c.from, To: c.to}
			got, err := m.Refusal(nodes)
			hash, hashed := m.Hash()
			if err != nil || hashed != nil || (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
				t.Fatalf("it says %q: %v, %v", got, err, hashed)
			}
			if got != "" && !strings.Contains(got, hash) {
				t.Errorf("%q does not say which placement is to be approved: %s", got, hash)
			}
			m.Approved = hash
			if got, err = m.Refusal(nodes); got != "" || err != nil {
				t.Errorf("what is approved is refused: %s, %v", got, err)
			}
			m.Approved, err = Moves{To: &corev1.PodSpec{NodeName: "other"}}.Hash()
			if err != nil {
				t.Fatal(err)
			}
			if got, _ = m.Refusal(nodes); (got == "") != (c.says == "") {
				t.Errorf("with another placement approved it says %q", got)
			}
		})
	}
}
