package endpointslice

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/endpointslice/plan"
)

// mirror keeps the slices that mirror Endpoints written by a person.
type mirror struct {
	reader client.Reader
	writer writer
}

// Reconcile implements reconcile.Reconciler; the key is that of the Endpoints.
func (m *mirror) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	written, err := readEndpoints(ctx, m.reader, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	var svc *corev1.Service
	var found corev1.Service
	switch err := m.reader.Get(ctx, key.NamespacedName, &found); {
	case err == nil:
		svc = &found
	case !apierrors.IsNotFound(err):
		return ctrl.Result{}, fmt.Errorf("read service %s: %w", key, err)
	}
	if !plan.Mirrored(svc, written) {
		written = nil
	}
	current, err := slicesOf(ctx, m.reader, key.NamespacedName, plan.Mirror)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, m.apply(ctx, key.NamespacedName, plan.MirrorSlices(written, current))
}

// apply writes new slices before it takes old ones away: an address is rather
// listed twice than missing.
func (m *mirror) apply(ctx context.Context, key client.ObjectKey, c plan.Changes) error {
	var failures []error
	for _, s := range c.Create {
		failures = append(failures, m.writer.CreateSlice(ctx, s))
	}
	for _, s := range c.Update {
		failures = append(failures, m.writer.UpdateSlice(ctx, s))
	}
	for _, s := range c.Delete {
		failures = append(failures, m.writer.DeleteSlice(ctx, s))
	}
	for i, err := range failures {
		if overtaken(err) {
			failures[i] = nil // the change that was faster brings us back
		}
	}
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("mirror endpoints %s: %w", key, err)
	}
	if n := len(failures); n > 0 {
		klog.FromContext(ctx).V(3).Info("Mirrored endpoints", "endpoints", key, "slices", n)
	}
	return nil
}
