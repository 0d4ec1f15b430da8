package copies

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
)

// What can be deleted goes, and a list stays for as long as a copy does that it may name.
func TestCopiesThatCannotBeDeleted(t *testing.T) {
	meta := func(name, is string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{content.Label: is}}
	}
	secret := &corev1.Secret{ObjectMeta: meta("a", content.IsCopy)}
	conf := &corev1.ConfigMap{ObjectMeta: meta("b", content.IsCopy)}
	list := &corev1.ConfigMap{ObjectMeta: meta("c", content.IsManifest)}
	client := fake.NewClientset(secret, conf, list)
	refused := true
	client.PrependReactor("delete", "secrets", func(k8stesting.Action) (bool, runtime.Object, error) {
		return refused, nil, apierrors.NewForbidden(corev1.Resource("secrets"), "a", nil)
	})
	job := &contents.Job{Delete: []metav1.Object{secret, conf, list}}
	r := Access{Client: client}.CarryOut(t.Context(), job)
	if len(r.Deleted) != 1 || r.Deleted[0] != metav1.Object(conf) || r.Why != "" ||
		!strings.Contains(r.Left, `copy a cannot be deleted: secrets "a" is forbidden`) {
		t.Errorf("it is told that %+v", r)
	}
	refused = false
	if r = (Access{Client: client}).CarryOut(t.Context(), job); len(r.Deleted) != 3 || r.Left != "" {
		t.Errorf("then it is told that %+v", r)
	}
}
