package storageinuse

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

func TestProtection(t *testing.T) {
	for name, c := range map[string]struct {
		object      runtime.Object
		subresource string
		want        string
	}{
		"a volume":        {&corev1.PersistentVolume{}, "", "[kubernetes.io/pv-protection]"},
		"a claim":         {&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"a/b"}}}, "", "[a/b kubernetes.io/pvc-protection]"},
		"a claim with it": {&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"kubernetes.io/pvc-protection"}}}, "", "[kubernetes.io/pvc-protection]"},
		"a pod":           {&corev1.Pod{}, "", "[]"},
		"its status":      {&corev1.PersistentVolume{}, "status", "[]"},
	} {
		a := admission.NewAttributesRecord(c.object, nil, schema.GroupVersionKind{}, "", "x", schema.GroupVersionResource{}, c.subresource, admission.Create, &metav1.CreateOptions{}, false, nil)
		if err := New().Admit(t.Context(), a, nil); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.object.(metav1.Object).GetFinalizers()); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
