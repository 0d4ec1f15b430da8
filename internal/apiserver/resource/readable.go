package resource

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// readable refuses objects that cannot be taken at all, as a decoder would. A nil
// one takes everything.
type readable func(runtime.Object) error

// Unreadable returns why an object of the kind cannot be taken at all.
func (d Definition) Unreadable(obj runtime.Object) error {
	if d.rules.unreadable == nil {
		return nil
	}
	return d.rules.unreadable(obj)
}

func (d Definition) readable() readable {
	if d.rules.unreadable == nil {
		return nil
	}
	return func(obj runtime.Object) error {
		if err := d.Unreadable(obj); err != nil {
			kind := d.GroupVersionKind()
			return apierrors.NewBadRequest(fmt.Sprintf(
				"%s in version %q cannot be handled as a %s: %v", kind.Kind, kind.Version, kind.Kind, err,
			))
		}
		return nil
	}
}

func (r readable) check(obj runtime.Object) error {
	if r == nil {
		return nil
	}
	return r(obj)
}

// checked looks at what an update makes of the stored object.
func (r readable) checked(info rest.UpdatedObjectInfo) rest.UpdatedObjectInfo {
	if r == nil {
		return info
	}
	return rest.WrapUpdatedObjectInfo(info, func(_ context.Context, obj, _ runtime.Object) (runtime.Object, error) {
		return obj, r(obj)
	})
}
