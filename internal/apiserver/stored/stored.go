// Package stored reads objects from the API server's own storages, below HTTP: nothing
// is encoded, and nobody's rights are asked for. What it returns is shared with the watch
// cache: nothing of it may be changed.
package stored

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Get reads one object as it is now; the namespace is empty for what has none.
func Get[T runtime.Object](ctx context.Context, from rest.Getter, namespace, name string) (T, error) {
	return get[T](ctx, from, namespace, name, &metav1.GetOptions{})
}

// Cached reads one object as the watch cache has it, which may be moments behind.
func Cached[T runtime.Object](ctx context.Context, from rest.Getter, namespace, name string) (T, error) {
	return get[T](ctx, from, namespace, name, &metav1.GetOptions{ResourceVersion: "0"})
}

func get[T runtime.Object](ctx context.Context, from rest.Getter, namespace, name string, options *metav1.GetOptions) (found T, err error) {
	if from == nil {
		return found, errors.New("the server does not know its storages yet")
	}
	obj, err := from.Get(request.WithNamespace(ctx, namespace), name, options)
	if err != nil {
		return found, err
	}
	found, ok := obj.(T)
	if !ok {
		return found, fmt.Errorf("read %s: got a %T", name, obj)
	}
	return found, nil
}
