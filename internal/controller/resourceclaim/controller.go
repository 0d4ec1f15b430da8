// Package resourceclaim makes the ResourceClaims of pods from templates, and gives back the devices of claims that no
// pod uses any more. Package plan decides; apply.go acts.
package resourceclaim

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// EventSource is the component that the controller's events are from.
const EventSource = "resource_claim"

// Indexes of the shared cache.
const (
	// byClaim finds the pods that name a claim, or whose status does, by namespace/name.
	byClaim = "resourceclaim-controller/claim"
	// byTemplate finds the pods that name a template, by namespace/name.
	byTemplate = "resourceclaim-controller/template"
)

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Event(object runtime.Object, eventtype, reason, message string)
}

// Config is what the controller needs.
type Config struct {
	// Client reads what must not be stale, and writes. Required.
	Client kubernetes.Interface
	// Events may be nil.
	Events Recorder
}

// workers is how many pods, and how many claims, are looked after at a time. A daemon of which each pod has a claim
// brings as many at once as there are nodes, and a webhook that takes its time for one must not hold up the others.
const workers = 10

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Client == nil {
		return errors.New("resourceclaim: Client is required")
	}
	ctx := context.Background()
	err := errors.Join(
		mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, byClaim, func(o client.Object) []string {
			return claimsOf(o.(*corev1.Pod))
		}),
		mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, byTemplate, func(o client.Object) []string {
			return templatesOf(o.(*corev1.Pod))
		}),
	)
	if err != nil {
		return fmt.Errorf("index pods by their claims: %w", err)
	}
	l, options := &loop{reader: mgr.GetClient(), cfg: cfg}, controller.Options{MaxConcurrentReconciles: workers}
	withClaims := builder.WithPredicates(predicate.NewPredicateFuncs(hasClaims))
	err = ctrl.NewControllerManagedBy(mgr).Named("resourceclaim-pods").WithOptions(options).For(&corev1.Pod{}, withClaims).
		Watches(&resourcev1.ResourceClaim{}, handler.EnqueueRequestsFromMapFunc(l.podsOfClaim)).
		Watches(&resourcev1.ResourceClaimTemplate{}, handler.EnqueueRequestsFromMapFunc(l.podsOfTemplate)).
		Complete(reconcile.Func(l.reconcilePod))
	if err != nil {
		return fmt.Errorf("add the controller of pods with claims: %w", err)
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("resourceclaim").WithOptions(options).For(&resourcev1.ResourceClaim{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(claimsToLookAt), withClaims).
		Complete(reconcile.Func(l.reconcileClaim))
	if err != nil {
		return fmt.Errorf("add the controller of ResourceClaims: %w", err)
	}
	return nil
}

// loop is both controllers, which share what they know.
type loop struct {
	reader client.Reader // of shared objects, which are never changed
	cfg    Config
}

func hasClaims(o client.Object) bool { return len(o.(*corev1.Pod).Spec.ResourceClaims) > 0 }

// claimsOf are the claims that a pod uses, as namespace/name.
func claimsOf(p *corev1.Pod) (out []string) {
	for name := range resourceclaim.PodClaims(p) {
		out = append(out, p.Namespace+"/"+name)
	}
	return out
}

func templatesOf(p *corev1.Pod) (out []string) {
	for _, entry := range p.Spec.ResourceClaims {
		if entry.ResourceClaimTemplateName != nil {
			out = append(out, p.Namespace+"/"+*entry.ResourceClaimTemplateName)
		}
	}
	return out
}

// claimsToLookAt are those of a pod that was changed, or is gone.
func claimsToLookAt(_ context.Context, o client.Object) (out []ctrl.Request) {
	for name := range resourceclaim.PodClaims(o.(*corev1.Pod)) {
		out = append(out, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: name}})
	}
	return out
}

// podsOfClaim are the pods that use a claim, and the one for which it was made.
func (l *loop) podsOfClaim(ctx context.Context, claim client.Object) []ctrl.Request {
	out := l.podsBy(ctx, byClaim, claim)
	if ref := metav1.GetControllerOfNoCopy(claim); ref != nil && ref.Kind == "Pod" {
		out = append(out, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: claim.GetNamespace(), Name: ref.Name}})
	}
	return out
}

func (l *loop) podsOfTemplate(ctx context.Context, template client.Object) []ctrl.Request {
	return l.podsBy(ctx, byTemplate, template)
}

func (l *loop) podsBy(ctx context.Context, index string, of client.Object) (out []ctrl.Request) {
	var list corev1.PodList
	if err := l.reader.List(
		ctx, &list, client.MatchingFields{index: of.GetNamespace() + "/" + of.GetName()}, client.UnsafeDisableDeepCopy,
	); err != nil {
		klog.FromContext(ctx).Error(
			err, "Could not find the pods for which an object is news", "index", index, "object", klog.KObj(of),
		)
	}
	for i := range list.Items {
		out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}
