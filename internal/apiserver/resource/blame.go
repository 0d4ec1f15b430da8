package resource

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

// BlameRequest makes a bad request (400) of an update that cannot be computed,
// such as a patch that does not fit the kind, or a resourceVersion that is none.
// The library leaves such errors without a status, and would answer with an
// internal error.
func BlameRequest(info rest.UpdatedObjectInfo) rest.UpdatedObjectInfo { return blamed{info} }

type blamed struct{ rest.UpdatedObjectInfo }

// UpdatedObject implements rest.UpdatedObjectInfo.
func (b blamed) UpdatedObject(ctx context.Context, old runtime.Object) (_ runtime.Object, err error) {
	defer func() {
		if p := recover(); p != nil {
			if !inStrategicMerge() {
				panic(p)
			}
			err = apierrors.NewBadRequest(fmt.Sprintf("the patch cannot be applied: %v", p))
		}
	}()
	obj, err := b.UpdatedObjectInfo.UpdatedObject(ctx, old)
	if err == nil {
		return obj, checkVersion(obj)
	}
	if status := apierrors.APIStatus(nil); ctx.Err() != nil || errors.As(err, &status) {
		return nil, err
	}
	return nil, apierrors.NewBadRequest(err.Error())
}

// inStrategicMerge says whether the panic that is under way came out of the
// library's strategic merge. It compares and hashes values that a patch may bring
// in any type, and Go panics where a type allows neither.
func inStrategicMerge() bool {
	callers := make([]uintptr, 16)
	frames := goruntime.CallersFrames(callers[:goruntime.Callers(3, callers)])
	for {
		frame, more := frames.Next()
		if strings.HasPrefix(frame.Function, "k8s.io/apimachinery/pkg/util/strategicpatch.") {
			return true
		}
		if !more || !strings.HasPrefix(frame.Function, "runtime.") {
			return false
		}
	}
}

func checkVersion(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if _, err := (storage.APIObjectVersioner{}).ParseResourceVersion(m.GetResourceVersion()); err != nil {
		return apierrors.NewBadRequest(
			field.Invalid(field.NewPath("metadata", "resourceVersion"), m.GetResourceVersion(), err.Error()).Error(),
		)
	}
	return nil
}
