package copies

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
)

// A controller may not have heard yet that its DaemonSet is deleted, and that the copies are left to its pods. Taken
// back they would be deleted with it, under the pods that read them.
func TestADaemonSetThatGoesTakesNoCopyBack(t *testing.T) {
	known := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d", UID: "d1"}}
	leaves, next := known.DeepCopy(), known.DeepCopy()
	leaves.DeletionTimestamp, leaves.Finalizers = ptr.To(metav1.Now()), []string{metav1.FinalizerOrphanDependents}
	next.UID = "d2"
	for name, c := range map[string]struct {
		live []runtime.Object
		why  string
	}{
		"it is there":                  {[]runtime.Object{known}, ""},
		"it is being deleted":          {[]runtime.Object{leaves}, "is being deleted"},
		"it is gone":                   {nil, `daemonsets.apps "d" not found`},
		"another one has the name now": {[]runtime.Object{next}, "is gone"},
	} {
		for _, left := range []metav1.Object{
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Immutable: ptr.To(true)},
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}, Immutable: ptr.To(true)},
		} {
			want := left.(runtime.Object).DeepCopyObject().(metav1.Object)
			want.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(known, belongings.Kind)})
			client := fake.NewClientset(append(c.live, left.(runtime.Object))...)
			r := Access{Client: client}.CarryOut(t.Context(), &contents.Job{DaemonSet: known, Make: []metav1.Object{want}})
			if taken := len(r.Made) == 1; taken != (c.why == "") || !strings.Contains(r.Why, c.why) {
				t.Errorf("%s, %T: it is told that %+v", name, left, r)
			}
		}
	}
}
