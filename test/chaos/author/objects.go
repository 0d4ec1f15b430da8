package author

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/test/chaos/history/revision"
)

// ours is a new object, with nothing in it.
func ours(ref revision.Ref, namespace string) metav1.Object {
	meta := metav1.ObjectMeta{Name: ref.Name, Namespace: namespace}
	if ref.Kind == revision.SecretKind {
		return &corev1.Secret{ObjectMeta: meta}
	}
	return &corev1.ConfigMap{ObjectMeta: meta}
}

// put has an object hold a value; a Secret says of it that it is one.
func put(o metav1.Object, value string) {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		o.Data = map[string]string{key: value}
	case *corev1.Secret:
		o.Data = map[string][]byte{key: []byte(secretly + value)}
	}
}

// held is the value that was put into an object.
func held(o metav1.Object) string {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		return o.Data[key]
	case *corev1.Secret:
		return strings.TrimPrefix(string(o.Data[key]), secretly)
	}
	return ""
}

func (a *Author) get(ctx context.Context, ref revision.Ref) (metav1.Object, error) {
	if ref.Kind == revision.SecretKind {
		return a.API().CoreV1().Secrets(a.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	}
	return a.API().CoreV1().ConfigMaps(a.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
}

// send creates an object, or updates it.
func (a *Author) send(ctx context.Context, o metav1.Object, fresh bool) (metav1.Object, error) {
	maps, secrets := a.API().CoreV1().ConfigMaps(a.Namespace), a.API().CoreV1().Secrets(a.Namespace)
	switch o := o.(type) {
	case *corev1.Secret:
		if fresh {
			return secrets.Create(ctx, o, metav1.CreateOptions{})
		}
		return secrets.Update(ctx, o, metav1.UpdateOptions{})
	case *corev1.ConfigMap:
		if fresh {
			return maps.Create(ctx, o, metav1.CreateOptions{})
		}
		return maps.Update(ctx, o, metav1.UpdateOptions{})
	}
	panic("author: neither a ConfigMap nor a Secret")
}
