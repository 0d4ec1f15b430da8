// Package rootca keeps the config map kube-root-ca.crt, with the CA certificate that
// pods verify the API server with, in every active namespace.
package rootca

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	name = "kube-root-ca.crt"
	key  = "ca.crt"
)

// Config says what to publish and through what to write.
type Config struct {
	// CA are the certificates in PEM, as they are now. Required.
	CA func() []byte
	// OnChange has a function called whenever CA gives something else. Required.
	OnChange func(f func())
	// Client reads and writes config maps. It must have no client-side rate limit. Required.
	Client kubernetes.Interface
}

// Add puts the controller under the manager, which runs it while it leads.
//
// Config maps are watched as metadata only, so that the cache need not hold what all
// others contain.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil || cfg.CA == nil || cfg.OnChange == nil {
		return errors.New("root CA: CA, OnChange and Client are required")
	}
	changes := make(chan event.GenericEvent, 1)
	cfg.OnChange(func() {
		select {
		case changes <- event.GenericEvent{Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}}:
		default: // one that waits is enough
		}
	})
	reader := mgr.GetCache()
	isOurs := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetName() == name })
	return ctrl.NewControllerManagedBy(mgr).
		Named("rootca").
		For(&corev1.Namespace{}).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(namespaceOf), builder.WithPredicates(isOurs)).
		WatchesRawSource(source.Channel(changes, handler.EnqueueRequestsFromMapFunc(everyNamespace(reader)))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(&reconciler{reader: reader, api: clientAPI{cfg.Client}, ca: func() string { return string(cfg.CA()) }})
}

func everyNamespace(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, _ client.Object) (out []reconcile.Request) {
		var all corev1.NamespaceList
		if err := reader.List(ctx, &all); err != nil {
			klog.FromContext(ctx).Error(err, "Could not list the namespaces to publish the changed CA certificates")
			return nil
		}
		for _, ns := range all.Items {
			out = append(out, reconcile.Request{NamespacedName: types.NamespacedName{Name: ns.Name}})
		}
		return out
	}
}

func namespaceOf(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: object.GetNamespace()}}}
}

// api is everything that the controller asks of the API server.
type api interface {
	Get(ctx context.Context, namespace string) (*corev1.ConfigMap, error)
	Create(ctx context.Context, m *corev1.ConfigMap) error
	Update(ctx context.Context, m *corev1.ConfigMap) error
}

type reconciler struct {
	reader client.Reader
	api    api
	ca     func() string
}

// Reconcile makes or mends the namespace's config map.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var ns corev1.Namespace
	if err := r.reader.Get(ctx, request.NamespacedName, &ns); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if ns.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	ca := r.ca()
	current, err := r.api.Get(ctx, ns.Name)
	switch {
	case apierrors.IsNotFound(err):
		err = r.api.Create(ctx, wanted(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: name}}, ca))
	case err == nil && !holds(current, ca):
		err = r.api.Update(ctx, wanted(current, ca))
	}
	if err != nil && !settled(err) {
		return reconcile.Result{}, fmt.Errorf("publish the CA certificate in namespace %s: %w", ns.Name, err)
	}
	return reconcile.Result{}, nil
}

// holds reports whether m contains the certificate and nothing else.
func holds(m *corev1.ConfigMap, ca string) bool {
	return len(m.Data) == 1 && m.Data[key] == ca && len(m.BinaryData) == 0
}

// wanted is m with the certificate as its only content. m must not be shared.
func wanted(m *corev1.ConfigMap, ca string) *corev1.ConfigMap {
	m.Data, m.BinaryData = map[string]string{key: ca}, nil
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations["kubernetes.io/description"] = "The CA certificate with which programs inside the cluster verify the " +
		"API server."
	return m
}

// settled tells that another attempt is under way or none is needed: somebody else made
// the config map or changed it, which will be looked at, or the namespace is going.
func settled(err error) bool {
	return apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// clientAPI is the api over client-go.
type clientAPI struct{ client kubernetes.Interface }

// Get implements api.
func (a clientAPI) Get(ctx context.Context, namespace string) (*corev1.ConfigMap, error) {
	return a.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Create implements api.
func (a clientAPI) Create(ctx context.Context, m *corev1.ConfigMap) error {
	_, err := a.client.CoreV1().ConfigMaps(m.Namespace).Create(ctx, m, metav1.CreateOptions{})
	return err
}

// Update implements api.
func (a clientAPI) Update(ctx context.Context, m *corev1.ConfigMap) error {
	_, err := a.client.CoreV1().ConfigMaps(m.Namespace).Update(ctx, m, metav1.UpdateOptions{})
	return err
}
