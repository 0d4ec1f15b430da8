package plan

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// TestANodeThatComesWhileAClockIsSetBack joins, though it was created before the NodeStartup by what is written: it was
// seen to come later. What may have been there before stays as it is.
func TestANodeThatComesWhileAClockIsSetBack(t *testing.T) {
	const never = -1
	for name, c := range map[string]struct {
		startup, node time.Duration // when they were seen
		age           time.Duration // when the node was created, since the NodeStartup
		closes        bool
	}{
		"it is seen long after":              {0, time.Minute, -time.Hour, true},
		"it is seen just after":              {0, time.Second, -time.Hour, false},
		"it is seen first":                   {time.Hour, 0, -time.Hour, false},
		"it was there when it began":         {0, never, -time.Hour, false},
		"the NodeStartup is not seen":        {never, time.Hour, -time.Hour, false},
		"it is seen just after, and younger": {0, time.Second, time.Second, true},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "n",
			CreationTimestamp: metav1.NewTime(start.Add(c.age))}}
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
		s := besideStartup()
		var a Arrivals
		for _, later := range []time.Duration{0, 24 * time.Hour} { // what is told again is no news
			if c.startup != never {
				a.Startup(s.UID, start.Add(c.startup+later))
			}
			if c.node != never {
				a.Node(n.UID, start.Add(c.node+later))
			}
		}
		got := Look(a.Vouch(n, s), s, standingOf(nil), InPlace, start)
		if got.Gate != nil != c.closes || got.Mark == (nodestartup.Mark{}) {
			t.Errorf("%s: due is %+v, want that it is closed: %v", name, got, c.closes)
		}
		if n.CreationTimestamp.Sub(start) != c.age {
			t.Errorf("%s: the node itself is changed", name)
		}
		a.Forget(n.UID)
		a.Forget(s.UID)
		if len(a.nodes)+len(a.startups) != 0 {
			t.Errorf("%s: something is left: %+v", name, a)
		}
	}
	if n := (&corev1.Node{}); (&Arrivals{}).Vouch(n, nil) != n {
		t.Error("a node that no NodeStartup chooses is another")
	}
}
