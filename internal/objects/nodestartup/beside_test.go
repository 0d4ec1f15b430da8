package nodestartup

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWhoToleratesEveryGroup: the taint's value changes from group to group, so one value does not do.
func TestWhoToleratesEveryGroup(t *testing.T) {
	const exists, equal = corev1.TolerationOpExists, corev1.TolerationOpEqual
	for name, c := range map[string]struct {
		has  corev1.Toleration
		want bool
	}{
		"as we say":           {Toleration(), true},
		"any effect":          {corev1.Toleration{Key: TaintKey, Operator: exists}, true},
		"everything":          {corev1.Toleration{Operator: exists}, true},
		"every taint of such": {corev1.Toleration{Operator: exists, Effect: corev1.TaintEffectNoSchedule}, true},
		"one group":           {corev1.Toleration{Key: TaintKey, Operator: equal, Value: "s_1"}, false},
		"no operator":         {corev1.Toleration{Key: TaintKey, Value: "s_1"}, false},
		"another effect":      {corev1.Toleration{Operator: exists, Effect: corev1.TaintEffectNoExecute}, false},
		"another taint":       {corev1.Toleration{Key: "example.com/x", Operator: exists}, false},
	} {
		spec := &corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "other"}, c.has}}
		if got := Tolerated(spec); got != c.want {
			t.Errorf("%s: it is tolerated: %v, want %v", name, got, c.want)
		}
	}
	if Tolerated(&corev1.PodSpec{}) {
		t.Error("a pod without tolerations tolerates it")
	}
}

// TestMark: what is written is read again, and a node without a mark is known from one with an empty mark.
func TestMark(t *testing.T) {
	n := &corev1.Node{}
	if _, marked := MarkOf(n); marked {
		t.Error("a node without annotations is marked")
	}
	for _, m := range []Mark{{}, {Startup: "u"}, {Startup: "u", BootID: "a/b"}} {
		value := m.String()
		if m == (Mark{}) {
			value = ""
		}
		n.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{MarkAnnotation: value}}
		if got, marked := MarkOf(n); !marked || got != m {
			t.Errorf("%q is read as %+v, %v", value, got, marked)
		}
	}
}
