package rolloutapproval

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Stored reads policies and DaemonSets as they are stored. It is filled once the storages are there.
type Stored struct {
	Policies, DaemonSets rest.Lister
}

func (s *Stored) policies(ctx context.Context, namespace string) ([]*v1alpha1.RolloutPolicy, error) {
	return list[*v1alpha1.RolloutPolicy](ctx, s.Policies, namespace)
}

func (s *Stored) daemonSets(ctx context.Context, namespace string) ([]*appsv1.DaemonSet, error) {
	return list[*appsv1.DaemonSet](ctx, s.DaemonSets, namespace)
}

// list reads the objects of a namespace, not from a cache.
func list[T runtime.Object](ctx context.Context, from rest.Lister, namespace string) (out []T, err error) {
	if from == nil {
		return nil, errors.New("the server does not know its storages yet")
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
