package scheduler

import (
	"context"
	"errors"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/everynode/everynode/internal/scheduler/devices"
)

// claimWriter fails to write claims, and has one to read.
type claimWriter struct {
	Writer
	err   error
	there *resourcev1.ResourceClaim
}

func (w claimWriter) BindClaim(context.Context, *resourcev1.ResourceClaim, *resourcev1.ResourceClaim) error {
	return w.err
}

func (w claimWriter) ReadClaim(context.Context, *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error) {
	return w.there, nil
}

// A device whose claim may have been written, by this process or another, is not free for others.
func TestFailedWriteOfAClaim(t *testing.T) {
	of := schema.GroupResource{Group: resourcev1.GroupName, Resource: "resourceclaims"}
	empty := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "c"}}
	given := empty.DeepCopy()
	given.Status.Allocation = &resourcev1.AllocationResult{}
	another := given.DeepCopy()
	another.UID = "d"
	for name, test := range map[string]struct {
		err   error
		there *resourcev1.ResourceClaim
		free  int
	}{
		"it was done":                 {nil, given, 0},
		"no answer, and it was done":  {errors.New("no answer"), given, 0},
		"no answer, and it was not":   {errors.New("no answer"), empty, 1},
		"somebody gave it devices":    {apierrors.NewConflict(of, "c", errors.New("another version")), given, 0},
		"somebody changed its labels": {apierrors.NewConflict(of, "c", errors.New("another version")), empty, 1},
		"another of its name":         {apierrors.NewConflict(of, "c", errors.New("another one")), another, 1},
		"it is gone":                  {apierrors.NewNotFound(of, "c"), nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := &binder{writer: claimWriter{err: test.err, there: test.there}}
			failed, err := b.giveDevices(t.Context(), []devices.Gift{{Was: empty, Next: given}})
			if len(failed) != test.free || (err == nil) != (test.err == nil) {
				t.Errorf("%d are free again, %v; want %d", len(failed), err, test.free)
			}
		})
	}
}
