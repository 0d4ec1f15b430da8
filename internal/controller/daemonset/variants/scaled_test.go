package variants

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// Where a VerticalPodAutoscaler gives amounts to pods to which a variant gives some too, the variant says so, by whatever
// way these pods got them. A variant that gives none has nothing to do with that.
func TestTwoGiveAmounts(t *testing.T) {
	for _, by := range []string{"vpaUpdates", "vpaInPlaceUpdated"} {
		w := newWorld()
		w.setNode("n1", "xl", 4)
		w.setNode("n2", "xl", 4)
		w.setNode("n3", "s", 4)
		w.setVariant("large", "xl", 1, 0, 0.1)
		w.setVariant("small", "s", 1, 30, 0)
		w.begin()
		for uid, node := range map[string]string{"p1": "n1", "p2": "n2", "p3": "n3"} {
			w.make(types.UID(uid), node, w.newest())
		}
		if got := w.says("large"); !strings.HasPrefix(got, "True") {
			t.Fatalf("before the condition is %q", got)
		}
		clear(w.writing)
		for _, uid := range []string{"p2", "p3"} {
			w.scale(uid, by)
		}
		got := w.says("large")
		if !strings.HasPrefix(got, "False DaemonSet ds on 1 node, such as n2") || !strings.Contains(got, "VerticalPodAutoscaler") {
			t.Errorf("of pods with %s the condition is %q", by, got)
		}
		clear(w.writing)
		if got := w.says("small"); strings.Contains(got, "VerticalPodAutoscaler") {
			t.Errorf("of a variant without amounts it is %q", got)
		}
	}
}

// scale has somebody else give a pod other amounts, and say so as a VerticalPodAutoscaler does.
func (w *world) scale(uid, by string) {
	p := w.pods[types.UID(uid)].DeepCopy()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[by] = "Pod resources updated by logs: container 0: memory request"
	w.pods[p.UID] = p
	info, _ := w.rows.Pod(p.UID)
	info.Phase = fact.PodActive
	w.Step(info)
}
