package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// On a node whose clock is ahead by an hour a daemon is available once it was seen ready for as long as it must be, and
// not an hour later; one that was not ready meanwhile begins again. The cache's object stays as it is.
func TestADaemonOfANodeWhoseClockIsAhead(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: after(0)}}
	p, a := daemonPod(1, 3600), Ahead{}
	from := func(second int) time.Time {
		now := start.Add(time.Duration(second) * time.Second)
		return AvailableFrom(node, []*corev1.Pod{a.Vouch(p, now)}, "set", 10*time.Second, now)
	}
	for _, second := range []int{5, 9, 3700} {
		if got, want := from(second), after(15).Time; !got.Equal(want) {
			t.Errorf("after %d s it is available from %v, want %v", second, got, want)
		}
	}
	if !p.Status.Conditions[0].LastTransitionTime.Equal(&metav1.Time{Time: after(3600).Time}) {
		t.Error("the pod itself was changed")
	}
	closed := node.DeepCopy()
	closed.Annotations = map[string]string{nodestartup.ClosedAnnotation: start.Add(4001 * time.Second).Format(time.RFC3339)}
	p = daemonPod(1, 9000)
	now := start.Add(4000*time.Second + time.Millisecond)
	if got := AvailableFrom(closed, []*corev1.Pod{a.Vouch(p, now)}, "set", 0, now); !got.Equal(now) {
		t.Errorf("on a node that was closed in that second it is available from %v, want %v", got, now)
	}
	p = p.DeepCopy()
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	if got := from(3701); !got.IsZero() || len(a) > 0 {
		t.Errorf("while it is not ready it is available from %v", got)
	}
	p = daemonPod(1, 3702)
	if got, want := from(3705), after(3712).Time; !got.Equal(want) {
		t.Errorf("once its clock is right it is available from %v, want %v", got, want)
	}
}
