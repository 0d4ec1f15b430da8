package volumes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reader reads the objects that many pods may share.
type reader interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// round reads each object once, however many volumes show it. It serves one refresh, on one goroutine.
type round struct {
	from       reader
	configMaps map[types.NamespacedName]answer[corev1.ConfigMap]
	secrets    map[types.NamespacedName]answer[corev1.Secret]
}

// answer is what reading an object gave.
type answer[T any] struct {
	object *T
	err    error
}

func newRound(from reader) *round {
	return &round{
		from:       from,
		configMaps: map[types.NamespacedName]answer[corev1.ConfigMap]{},
		secrets:    map[types.NamespacedName]answer[corev1.Secret]{},
	}
}

// ConfigMap implements reader.
func (r *round) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return once(ctx, r.configMaps, types.NamespacedName{Namespace: namespace, Name: name}, r.from.ConfigMap)
}

// Secret implements reader.
func (r *round) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return once(ctx, r.secrets, types.NamespacedName{Namespace: namespace, Name: name}, r.from.Secret)
}

func once[T any](ctx context.Context, known map[types.NamespacedName]answer[T], key types.NamespacedName,
	read func(context.Context, string, string) (*T, error)) (*T, error) {
	a, ok := known[key]
	if !ok {
		a.object, a.err = read(ctx, key.Namespace, key.Name)
		known[key] = a
	}
	return a.object, a.err
}
