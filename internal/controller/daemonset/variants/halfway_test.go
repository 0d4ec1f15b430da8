package variants

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/variant/resizing"
)

// A pod that a resize left half way is not one of a revision that comes then, though it was made as that wants it: it
// has other amounts, and is to be given these.
func TestAPodHalfWayIsNotOfTheNextRevision(t *testing.T) {
	for _, half := range []bool{false, true} {
		w := newWorld()
		w.setNode("n", "l", 4)
		w.setVariant("l", "l", 0, 0, 2)
		w.begin()
		w.make("p", "n", w.newest())
		before := w.newest()
		if half {
			p := w.pods["p"]
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, resizing.IntentAnnotation,
				`{"pod":"p","amounts":[{"c":{"requests":{"memory":"3Gi"}}}]}`)
			memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("3Gi")}
			p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: memory}}}
			if !halfWay(p) {
				t.Fatal("the pod is not half way")
			}
		}
		w.setVariant("s", "s", 0, 0, 1)
		w.settle()
		w.lookAll("ds", w.sets["ds"])
		info, _ := w.rows.Pod("p")
		if is := info.Revision == w.newest(); is == half || w.newest() == before {
			t.Errorf("half way %v: it counts as %s, the newest is %s after %s", half, info.Revision, w.newest(), before)
		}
	}
}
