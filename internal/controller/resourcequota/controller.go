// Package resourcequota counts what namespaces with a ResourceQuota have, and writes it into the quota's status.
// Admission charges what is made; this loop takes back what went.
package resourcequota

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	usage "github.com/everynode/everynode/internal/objects/quota"
)

const (
	// settle is how long news of a namespace gather before it is counted again: thousands of pods that end cause a few
	// counts.
	settle = 500 * time.Millisecond
	// second is when a namespace is counted again after something was taken back or a limit was changed. What admission
	// charged in between, and the cache did not show yet, was taken back with it; and what was made before admission knew
	// of a limit was not charged.
	second = 10 * time.Second
	// resync is how often a namespace is counted without news.
	resync = 5 * time.Minute
)

// Resource is one that a quota can count.
type Resource struct {
	GVR schema.GroupVersionResource
	GVK schema.GroupVersionKind
	// Prototype is set if the cache holds whole objects of the kind; of the others it holds metadata.
	Prototype client.Object
}

// object is what the cache is asked by.
func (r Resource) object() client.Object {
	if r.Prototype != nil {
		return r.Prototype
	}
	out := &metav1.PartialObjectMetadata{}
	out.SetGroupVersionKind(r.GVK)
	return out
}

// Config is what the controller needs.
type Config struct {
	// Client writes the status of quotas. It must have no client-side rate limit. Required.
	Client kubernetes.Interface
	// Resources are all built-in ones that namespaces hold and the cache shows.
	Resources []Resource
	// Added lists those that were added to the API while it runs, and Metadata counts them.
	Added    func(ctx context.Context) ([]schema.GroupVersionResource, error)
	Metadata metadata.Interface
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil || cfg.Metadata == nil || cfg.Added == nil {
		return errors.New("resourcequota: Client, Metadata and Added are required")
	}
	r := newReconciler(mgr.GetClient(), cfg)
	b := ctrl.NewControllerManagedBy(mgr).Named("resourcequota").WithOptions(controller.Options{
		MaxConcurrentReconciles: 5,
	}).
		Watches(&corev1.ResourceQuota{}, handler.Funcs{CreateFunc: quotaMade, UpdateFunc: quotaChanged})
	for _, resource := range cfg.Resources {
		b = b.Watches(resource.object(), r.handler(resource.GVR.GroupResource()))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("add the quota controller: %w", err)
	}
	return nil
}

type reconciler struct {
	reader    client.Reader // of shared objects, which are never changed
	cfg       Config
	resources map[schema.GroupResource]Resource
	// measures tells which names in a quota an object of a resource is counted under.
	measures quota.Registry
}

func newReconciler(reader client.Reader, cfg Config) *reconciler {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	r := &reconciler{reader: reader, cfg: cfg, resources: map[schema.GroupResource]Resource{}}
	for _, resource := range cfg.Resources {
		r.resources[resource.GVR.GroupResource()] = resource
	}
	r.measures = generic.NewRegistry(usage.Evaluators(nil, cfg.Clock.Now))
	for resource := range r.resources {
		if r.measures.Get(resource) == nil {
			r.measures.Add(generic.NewObjectCountEvaluator(resource, nil, ""))
		}
	}
	return r
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var q corev1.ResourceQuota
	if err := r.reader.Get(ctx, key.NamespacedName, &q); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	counted, failure := r.count(ctx, &q)
	next := corev1.ResourceQuotaStatus{Hard: q.Spec.Hard.DeepCopy(), Used: quota.Add(corev1.ResourceList{}, q.Status.Used)}
	for name, amount := range counted {
		next.Used[name] = amount
	}
	next.Used = quota.Mask(next.Used, quota.ResourceNames(q.Spec.Hard))
	again := resync
	if fewer, _ := quota.LessThanOrEqual(q.Status.Used, next.Used); !fewer || !quota.Equals(q.Status.Hard, next.Hard) {
		again = second
	}
	written, err := r.report(ctx, &q, next)
	if err := errors.Join(failure, err); err != nil {
		return ctrl.Result{}, err
	}
	if !written {
		again = settle
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// report writes the status if it is news. It is false if somebody else wrote it since it was read.
func (r *reconciler) report(ctx context.Context, q *corev1.ResourceQuota,
	next corev1.ResourceQuotaStatus) (bool, error) {
	if q.Status.Hard != nil && q.Status.Used != nil && apiequality.Semantic.DeepEqual(q.Status.Hard, next.Hard) &&
		quota.Equals(q.Status.Used, next.Used) {
		return true, nil
	}
	changed := *q // a copy of the struct is enough to set another status
	changed.Status = next
	klog.FromContext(ctx).V(3).Info("Writing what a namespace uses", "resourceQuota", klog.KObj(q))
	_, err := r.cfg.Client.CoreV1().ResourceQuotas(q.Namespace).UpdateStatus(ctx, &changed, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err):
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("write what is used of ResourceQuota %s: %w", klog.KObj(q), err)
	}
	return true, nil
}
