package gates

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/pinning"
)

// TestAGateOfOthersIsTakenOff: whoever puts each pod behind the gate has three of a template made again on a node, and no more.
func TestAGateOfOthersIsTakenOff(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	gated := func(uid, hash, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-" + uid, UID: types.UID(uid),
			Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}},
			Spec: corev1.PodSpec{NodeName: node, SchedulingGates: []corev1.PodSchedulingGate{{Name: pinning.Gate}}}}
	}
	free := gated("f", "h", "n1")
	free.Spec.SchedulingGates = nil
	var a Again
	for i, c := range []struct {
		after time.Duration
		set   types.UID
		pod   *corev1.Pod
		deed  Deed
		want  string
	}{
		{0, "1", gated("a", "h", "n1"), Remake, "remake []"},
		{0, "1", gated("a", "h", "n1"), Remake, "remake []"}, // it could not be deleted
		{time.Second, "1", gated("b", "h", "n1"), Remake, "remake []"},
		{time.Second, "1", gated("c", "h", "n1"), Remake, "remake []"},
		{time.Second, "1", gated("c", "h", "n1"), Remake, "remake []"},
		{time.Second, "1", gated("d", "h", "n1"), Remake, "open [n1]"},
		{time.Second, "1", gated("e", "h", "n1"), Remake, "open [n1]"},
		{time.Second, "1", gated("o", "h", "n1"), Open, "open []"},
		{time.Second, "1", free, Remake, "remake []"}, // it was let through, and lacks an image
		{time.Second, "1", gated("x", "h", "n2"), Remake, "remake []"},
		{time.Second, "1", gated("y", "other", "n1"), Remake, "remake []"},
		{time.Second, "2", gated("z", "h", "n1"), Remake, "remake []"},
		{againWithin, "1", gated("g", "h", "n1"), Remake, "remake []"},
	} {
		now = now.Add(c.after)
		due, nodes := a.Bound(now, c.set, []Move{{Pod: c.pod, Deed: c.deed}})
		if got := fmt.Sprint(due[0].Deed, " ", nodes); got != c.want || len(due) != 1 || due[0].Pod != c.pod {
			t.Errorf("%d: it is %s, want %s", i, got, c.want)
		}
	}
	if len(a.made) != 1 {
		t.Errorf("it remembers %d places for ever", len(a.made))
	}
}
