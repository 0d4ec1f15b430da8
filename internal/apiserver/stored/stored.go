// Package stored reads objects from the API server's own storages, below HTTP: nothing
// is encoded, and nobody's rights are asked for. What it returns is shared with the watch
// cache: nothing of it may be changed.
package stored

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
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

// List reads the objects of a namespace as they are now, not as the watch cache has them.
func List[T runtime.Object](ctx context.Context, from rest.Lister, namespace string) (out []T, err error) {
	if from == nil {
		return nil, errUnknown
	}
	all, err := from.List(request.WithNamespace(ctx, namespace), &internalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	err = meta.EachListItem(all, func(o runtime.Object) error {
		typed, ok := o.(T)
		if !ok {
			return fmt.Errorf("the list has a %T", o)
		}
		out = append(out, typed)
		return nil
	})
	return out, err
}

// errUnknown is the answer before the storages are there.
var errUnknown = errors.New("the server does not know its storages yet")

func get[T runtime.Object](ctx context.Context, from rest.Getter, namespace, name string,
	options *metav1.GetOptions) (found T, err error) {
	if from == nil {
		return found, errUnknown
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
