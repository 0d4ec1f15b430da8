package variants

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
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

// What formulas give is not followed for a pod that a VerticalPodAutoscaler gives amounts, and what a patch says is.
func TestFormulasAreNotFollowedWhereAnAutoscalerGivesAmounts(t *testing.T) {
	w := newWorld()
	w.setNode("n1", "xl", 4)
	w.setNode("n2", "xl", 4)
	w.setVariant("large", "xl", 1, 0, 0.1)
	w.begin()
	w.make("p1", "n1", w.newest())
	w.make("p2", "n2", w.newest())
	w.pods["p2"].Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}}}}
	w.scale("p2", "vpaInPlaceUpdated")
	current := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, uid := range []string{"p1", "p2"} {
			if info, _ := w.rows.Pod(types.UID(uid)); info.Revision == w.newest() {
				got = append(got, uid)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s %v are as they are to be, want %v", when, got, want)
		}
	}
	w.settle()
	current("at first", "p1", "p2")
	w.setVariant("large", "xl", 1, 0, 0.5)
	w.settle()
	current("with another formula", "p2")
	w.setNode("n2", "s", 8)
	w.settle()
	current("on a node that has no variant any more", "p2")
	w.setNode("n2", "xl", 8)
	large := w.all["large"].DeepCopy()
	w.TellVariant(large, true)
	w.settle()
	current("without variants", "p2")
	large.Generation++
	large.Spec.Patch = &runtime.RawExtension{Raw: []byte(
		`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}}`)}
	w.TellVariant(large, false)
	w.settle()
	current("with a patch")
	way, why, err := w.Resize("ds", "p2", w.newest(), "n2")
	if err != nil || way == nil {
		t.Fatalf("the patch is not given while the pod runs: %s, %v", why, err)
	}
	if got := way.Amounts["c"].Requests; len(got) != 1 || got.Cpu().String() != "2" {
		t.Errorf("the pod is given %v, want the patch's cpu alone", got)
	}
	w.setVariant("large", "xl", 1, 30, 0.5)
	w.settle()
	current("with a patch that no resize can express")
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
