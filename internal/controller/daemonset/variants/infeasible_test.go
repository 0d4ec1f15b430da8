package variants

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant/resizing"
)

// A pod that its node can never give its amounts is to be replaced. Where nobody knows by what, since the formula fails
// or variants are in conflict, it stays.
func TestAPodThatCannotBeResizedStaysWhereNoneCanBeMade(t *testing.T) {
	for name, make := range map[string]func(w *world){
		"the formula fails": func(w *world) {
			v := w.all["l"].DeepCopy()
			v.Generation++
			v.Spec.Resources["c"].Requests["memory"] = "node.labels['none'] == '' ? 1 : 2"
			w.TellVariant(v, false)
		},
		"a conflict": func(w *world) { w.setVariant("m", "l", 0, 3, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.setNode("n", "l", 4)
			w.setVariant("l", "l", 0, 0, 2)
			w.begin()
			w.make("p", "n", w.newest())
			p := w.pods["p"]
			p.Generation, p.Status.ObservedGeneration = 1, 1
			r := resizing.Record{Pod: p.Name, Generation: 1, At: start}
			text, err := r.Text()
			if err != nil {
				t.Fatal(err)
			}
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, resizing.Annotation, text)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue,
				Reason: corev1.PodReasonInfeasible}}
			is := func() string {
				w.lookAll("ds", w.sets["ds"])
				info, _ := w.rows.Pod("p")
				return info.Revision
			}
			if got := is(); got != content.WithVariants("t", content.Infeasible) {
				t.Errorf("it counts as %s", got)
			}
			make(w)
			w.settle()
			if got := is(); got != w.newest() {
				t.Errorf("it is not kept: it counts as %s, the newest is %s", got, w.newest())
			}
		})
	}
}
