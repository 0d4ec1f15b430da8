// Package namespace empties namespaces that are being deleted and then lets them go.
package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/controller/namespace/plan"
)

// Config says what namespaces hold and through what to delete it.
type Config struct {
	// Resources are all served namespaced kinds that can be listed and deleted. Pods go
	// first; the others follow when the last pod has ended.
	Resources []schema.GroupVersionResource
	// Added lists, again for each pass, those that were added to the API while it runs.
	// With an error it lists what is known nevertheless; nil for none.
	Added func(ctx context.Context) ([]schema.GroupVersionResource, error)
	// Client and Metadata write. They must have no client-side rate limit. Required.
	Client   kubernetes.Interface
	Metadata metadata.Interface
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	r, err := newReconciler(mgr.GetCache(), cfg)
	if err != nil {
		return err
	}
	terminating := predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetDeletionTimestamp() != nil
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("namespace").
		For(&corev1.Namespace{}).
		WithEventFilter(terminating).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8}).
		Complete(r)
}

type reconciler struct {
	reader client.Reader
	api    api
	clock  clock.PassiveClock
	pods   []schema.GroupVersionResource
	others []schema.GroupVersionResource
	added  func(ctx context.Context) ([]schema.GroupVersionResource, error)
}

func newReconciler(reader client.Reader, cfg Config) (*reconciler, error) {
	if cfg.Client == nil || cfg.Metadata == nil || len(cfg.Resources) == 0 {
		return nil, errors.New("namespace: Client, Metadata and Resources are required")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	r := &reconciler{reader: reader, api: clientAPI{cfg.Client, cfg.Metadata}, clock: cfg.Clock, added: cfg.Added}
	for _, resource := range cfg.Resources {
		if resource.Group == "" && resource.Resource == "pods" {
			r.pods = append(r.pods, resource)
		} else {
			r.others = append(r.others, resource)
		}
	}
	return r, nil
}

// Reconcile makes one pass over a terminating namespace.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var ns corev1.Namespace
	if err := r.reader.Get(ctx, request.NamespacedName, &ns); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return reconcile.Result{}, nil
	}
	remaining := r.empty(ctx, ns.Name)
	if ctx.Err() != nil {
		return reconcile.Result{}, nil
	}
	if err := r.updateStatus(ctx, &ns, remaining); err != nil {
		return reconcile.Result{}, fmt.Errorf("update status of namespace %s: %w", ns.Name, err)
	}
	if !remaining.Empty() {
		klog.FromContext(ctx).V(2).Info(
			"Namespace is not empty yet", "objects", remaining.Objects, "failures", errors.Join(remaining.Failures...),
		)
		return reconcile.Result{RequeueAfter: plan.RetryAfter(r.clock.Since(ns.DeletionTimestamp.Time))}, nil
	}
	if err := r.finalize(ctx, &ns); err != nil {
		return reconcile.Result{}, fmt.Errorf("let the empty namespace %s go: %w", ns.Name, err)
	}
	return reconcile.Result{}, nil
}

// finalize takes the namespace's own finalizer away. The API server then removes the
// namespace, unless finalizers of others are left.
func (r *reconciler) finalize(ctx context.Context, ns *corev1.Namespace) error {
	finalized := ns.DeepCopy()
	finalized.Spec.Finalizers = slices.DeleteFunc(finalized.Spec.Finalizers,
		func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	err := r.api.Finalize(ctx, finalized)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
