package objects

import (
	"context"
	"errors"
	"fmt"
	"testing"

	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRuntimeClassesAreKnownWhileTheAPIIsAway(t *testing.T) {
	var class *nodev1.RuntimeClass
	var failure error
	r := NewRuntimeClasses(func(context.Context, string, metav1.GetOptions) (*nodev1.RuntimeClass, error) {
		return class,
			failure
	}, nil)
	away, gone := errors.New("connection refused"), apierrors.NewNotFound(nodev1.Resource("runtimeclasses"), "vm")
	refused := apierrors.NewForbidden(nodev1.Resource("runtimeclasses"), "vm", errors.New("no"))
	for i, step := range []struct {
		class *nodev1.RuntimeClass
		err   error
		want  string
	}{
		{nil, away, " failed to lookup RuntimeClass vm: connection refused"},
		{&nodev1.RuntimeClass{Handler: "kata"}, nil, "kata <nil>"},
		{nil, away, "kata <nil>"},
		{nil, refused, ` failed to lookup RuntimeClass vm: runtimeclasses.node.k8s.io "vm" is forbidden: no`},
		{nil, gone, ` runtimeclasses.node.k8s.io "vm" not found`},
		{nil, away, " failed to lookup RuntimeClass vm: connection refused"},
	} {
		class, failure = step.class, step.err
		handler, err := r.Handler(t.Context(), "vm")
		if got := fmt.Sprint(handler, " ", err); got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}
