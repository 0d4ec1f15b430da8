package disruption

import (
	"context"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/controller/disruption/plan"
	"github.com/everynode/everynode/internal/objects/pod"
)

// settle is how long news of pods gather before their budget is computed: a rollout
// over thousands of pods should not write the status once for each.
const settle = 50 * time.Millisecond

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// podHandler enqueues the budgets that match a pod, or matched it before it changed.
func (r *reconciler) podHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.enqueue(ctx, q, e.Object, covers(e.Object)) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if matters(before, after) {
				r.enqueue(ctx, q, after, covers(before, after))
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.enqueue(ctx, q, e.Object, covers(e.Object)) },
	}
}

// ownerHandler enqueues the budgets of a namespace that may count a controller's pods.
func (r *reconciler) ownerHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { r.enqueue(ctx, q, e.Object, plan.NeedsOwners) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || wanted(e.ObjectOld) != wanted(e.ObjectNew) {
				r.enqueue(ctx, q, e.ObjectNew, plan.NeedsOwners)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.enqueue(ctx, q, e.Object, plan.NeedsOwners) },
	}
}

func (r *reconciler) enqueue(
	ctx context.Context, q queue, object client.Object, concerns func(*policyv1.PodDisruptionBudget) bool,
) {
	var budgets policyv1.PodDisruptionBudgetList
	if err := r.reader.List(ctx, &budgets, client.InNamespace(object.GetNamespace())); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Could not list disruption budgets", "namespace", object.GetNamespace())
		return
	}
	for i := range budgets.Items {
		if b := &budgets.Items[i]; concerns(b) {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)}, settle)
		}
	}
}

// covers tells the budgets that select one of the objects.
func covers(objects ...client.Object) func(*policyv1.PodDisruptionBudget) bool {
	return func(b *policyv1.PodDisruptionBudget) bool {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			return false // said when the budget itself is looked at
		}
		for _, object := range objects {
			if selector.Matches(labels.Set(object.GetLabels())) {
				return true
			}
		}
		return false
	}
}

// matters says whether a pod changed in what budgets depend on.
func matters(before, after *corev1.Pod) bool {
	return before.UID != after.UID ||
		pod.IsReady(before) != pod.IsReady(after) ||
		pod.IsTerminating(before) != pod.IsTerminating(after) ||
		!maps.Equal(before.Labels, after.Labels) ||
		controller(before) != controller(after)
}

func controller(object metav1.Object) metav1.OwnerReference {
	ref := ptr.Deref(metav1.GetControllerOfNoCopy(object), metav1.OwnerReference{})
	ref.Controller, ref.BlockOwnerDeletion = nil, nil
	return ref
}

// scale is all of a controller that budgets depend on.
type scale struct {
	replicas int32
	above    metav1.OwnerReference
}

func wanted(object client.Object) scale {
	switch o := object.(type) {
	case *appsv1.DaemonSet:
		return scale{replicas: o.Status.DesiredNumberScheduled}
	case *appsv1.ReplicaSet:
		return scale{replicas: ptr.Deref(o.Spec.Replicas, 1), above: controller(o)}
	case *appsv1.StatefulSet:
		return scale{replicas: ptr.Deref(o.Spec.Replicas, 1)}
	case *corev1.ReplicationController:
		return scale{replicas: ptr.Deref(o.Spec.Replicas, 1)}
	case *appsv1.Deployment:
		return scale{replicas: ptr.Deref(o.Spec.Replicas, 1)}
	}
	return scale{}
}
