package resource

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// BlameRequest makes a bad request (400) of an update that cannot be computed,
// such as a patch that does not fit the kind. The library leaves such errors
// without a status, and would answer with an internal error.
func BlameRequest(info rest.UpdatedObjectInfo) rest.UpdatedObjectInfo { return blamed{info} }

type blamed struct{ rest.UpdatedObjectInfo }

// UpdatedObject implements rest.UpdatedObjectInfo.
func (b blamed) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	obj, err := b.UpdatedObjectInfo.UpdatedObject(ctx, old)
	if err == nil || ctx.Err() != nil {
		return obj, err
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return nil, err
	}
	return nil, apierrors.NewBadRequest(err.Error())
}
