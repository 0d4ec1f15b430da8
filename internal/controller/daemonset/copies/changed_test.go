package copies

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/everynode/everynode/internal/controller/daemonset/contents"
)

// Another DaemonSet may own a copy by now that is to be deleted as one of an earlier DaemonSet: it stays, and is told.
func TestACopyThatHasChangedIsNotDeleted(t *testing.T) {
	copied := func(uid types.UID, version, owner string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: uid, ResourceVersion: version,
			OwnerReferences: []metav1.OwnerReference{{UID: types.UID(owner)}}}}
	}
	for name, c := range map[string]struct {
		there         *corev1.ConfigMap
		deleted, told int
	}{
		"as it was":            {copied("u", "1", "d1"), 1, 0},
		"another one's by now": {copied("u", "2", "d2"), 0, 1},
		"another of that name": {copied("v", "3", "d2"), 1, 0},
		"gone":                 {nil, 1, 0},
	} {
		client := fake.NewClientset()
		if c.there != nil {
			client = fake.NewClientset(c.there)
		}
		// The client of tests asks for no preconditions.
		client.PrependReactor("delete", "configmaps", func(a k8stesting.Action) (bool, runtime.Object, error) {
			p := a.(k8stesting.DeleteActionImpl).DeleteOptions.Preconditions
			if c.there != nil && (*p.UID != c.there.UID || *p.ResourceVersion != c.there.ResourceVersion) {
				return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), "c", nil)
			}
			return false, nil, nil
		})
		r := Access{Client: client}.CarryOut(t.Context(), &contents.Job{Delete: []metav1.Object{copied("u", "1", "d1")}})
		if len(r.Deleted) != c.deleted || len(r.Made) != c.told || r.Left != "" {
			t.Errorf("%s: it is told that %+v", name, r)
		}
	}
}
