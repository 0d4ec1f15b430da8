package storageclass

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/utils/ptr"
)

type classes struct {
	list []*storagev1.StorageClass
	err  error
}

func (c classes) List(labels.Selector) ([]*storagev1.StorageClass, error) { return c.list, c.err }

func create(resource, subresource string, obj runtime.Object) admission.Attributes {
	return admission.NewAttributesRecord(obj, nil, corev1.SchemeGroupVersion.WithKind("X"), "ns", "c", corev1.SchemeGroupVersion.WithResource(resource), subresource,
		admission.Create, &metav1.CreateOptions{}, false, nil)
}

func TestDefault(t *testing.T) {
	marked := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}}}
	for name, c := range map[string]struct {
		classes     classes
		asked       *string
		subresource string
		want        *string
		problem     string
	}{
		"none marked": {classes: classes{list: []*storagev1.StorageClass{{}}}},
		"marked":      {classes: classes{list: []*storagev1.StorageClass{marked}}, want: ptr.To("fast")},
		"named":       {classes: classes{list: []*storagev1.StorageClass{marked}}, asked: ptr.To("slow"), want: ptr.To("slow")},
		"no class":    {classes: classes{list: []*storagev1.StorageClass{marked}}, asked: ptr.To(""), want: ptr.To("")},
		"its status":  {classes: classes{list: []*storagev1.StorageClass{marked}}, subresource: "status"},
		"unreadable":  {classes: classes{err: errors.New("no disk")}, problem: "list StorageClasses: no disk"},
	} {
		claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: c.asked}}
		err := New(c.classes, func() bool { return true }).Admit(t.Context(), create("persistentvolumeclaims", c.subresource, claim), nil)
		if c.problem == "" && err != nil || c.problem != "" && (err == nil || !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%s: %v, want %q", name, err, c.problem)
		}
		if got := claim.Spec.StorageClassName; ptr.Deref(got, "nil") != ptr.Deref(c.want, "nil") {
			t.Errorf("%s: the class is %v", name, ptr.Deref(got, "nil"))
		}
	}
}
