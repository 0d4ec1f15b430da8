// Package serviceaccount keeps the service account "default" in every active namespace.
package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// name is the account that pods get which name none.
const name = "default"

// Config says through what to write.
type Config struct {
	// Client creates service accounts. It must have no client-side rate limit. Required.
	Client kubernetes.Interface
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("service account: Client is required")
	}
	isDefault := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetName() == name })
	return ctrl.NewControllerManagedBy(mgr).
		Named("serviceaccount").
		For(&corev1.Namespace{}).
		WatchesMetadata(
			&corev1.ServiceAccount{}, handler.EnqueueRequestsFromMapFunc(namespaceOf), builder.WithPredicates(isDefault),
		).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(&reconciler{reader: mgr.GetCache(), api: clientAPI{cfg.Client}})
}

func namespaceOf(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
}

// api is everything that the controller writes.
type api interface {
	Create(ctx context.Context, account *corev1.ServiceAccount) error
}

type reconciler struct {
	reader client.Reader
	api    api
}

// Reconcile makes the account if the namespace lacks it.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var ns corev1.Namespace
	if err := r.reader.Get(ctx, request.NamespacedName, &ns); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if ns.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	existing := &metav1.PartialObjectMetadata{}
	existing.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	err := r.reader.Get(ctx, types.NamespacedName{Namespace: ns.Name, Name: name}, existing)
	if err == nil || !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	err = r.api.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}})
	if err != nil && !settled(err) {
		return reconcile.Result{}, fmt.Errorf("create service account %s/%s: %w", ns.Name, name, err)
	}
	return reconcile.Result{}, nil
}

// settled tells that no account is missing after all: somebody else made it, or the
// namespace is going.
func settled(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// clientAPI is the api over client-go.
type clientAPI struct{ client kubernetes.Interface }

// Create implements api.
func (a clientAPI) Create(ctx context.Context, account *corev1.ServiceAccount) error {
	_, err := a.client.CoreV1().ServiceAccounts(account.Namespace).Create(ctx, account, metav1.CreateOptions{})
	return err
}
