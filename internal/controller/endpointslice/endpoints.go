package endpointslice

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/endpointslice/plan"
)

// endpoints keeps the Endpoints of Services that select pods.
type endpoints struct {
	reader client.Reader
	writer writer
	// known holds the keys of the Services that were there: with one of them go its
	// Endpoints, also hand-written ones. Those that a person made before their Service stay.
	known sync.Map
}

// Reconcile implements reconcile.Reconciler.
func (e *endpoints) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var svc corev1.Service
	err := e.reader.Get(ctx, key.NamespacedName, &svc)
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, e.remove(ctx, key)
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("read service %s: %w", key, err)
	}
	e.known.Store(key.NamespacedName, true)
	if !followsPods(&svc) || svc.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	pods, err := selected(ctx, e.reader, &svc)
	if err != nil {
		return ctrl.Result{}, err
	}
	current, err := readEndpoints(ctx, e.reader, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	wanted, changed := plan.Endpoints(&svc, pods, current)
	if !changed {
		return ctrl.Result{}, nil
	}
	err = e.writer.WriteEndpoints(ctx, wanted)
	if overtaken(err) {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("write endpoints %s: %w", key, err)
	}
	klog.FromContext(ctx).V(3).Info("Wrote endpoints", "endpoints", key)
	return ctrl.Result{}, nil
}

// remove deletes the Endpoints of a Service that is gone.
func (e *endpoints) remove(ctx context.Context, key ctrl.Request) error {
	current, err := readEndpoints(ctx, e.reader, key)
	if err != nil {
		return err
	}
	_, known := e.known.Load(key.NamespacedName)
	if current != nil && (known || plan.Ours(current)) {
		if err := e.writer.DeleteEndpoints(ctx, current); err != nil && !overtaken(err) {
			return fmt.Errorf("delete endpoints %s: %w", key, err)
		}
	}
	e.known.Delete(key.NamespacedName)
	return nil
}

// readEndpoints returns nil if there are none.
func readEndpoints(ctx context.Context, reader client.Reader, key ctrl.Request) (*corev1.Endpoints, error) {
	var e corev1.Endpoints
	err := reader.Get(ctx, key.NamespacedName, &e)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read endpoints %s: %w", key, err)
	}
	return &e, nil
}
