package resourcequota

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/objects/pod"
	usage "github.com/everynode/everynode/internal/objects/quota"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func requestFor(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}}
}

func quotaMade(_ context.Context, e event.CreateEvent, q queue) { q.Add(requestFor(e.Object)) }

// quotaChanged counts again for another limit, and for a status that neither admission nor this loop writes: of limits
// that do not hold, or of less that is used. What admission charges is no reason to count.
func quotaChanged(_ context.Context, e event.UpdateEvent, q queue) {
	before, after := e.ObjectOld.(*corev1.ResourceQuota), e.ObjectNew.(*corev1.ResourceQuota)
	switch charged, _ := quota.LessThanOrEqual(before.Status.Used, after.Status.Used); {
	case before.UID != after.UID || !apiequality.Semantic.DeepEqual(before.Spec, after.Spec):
		q.Add(requestFor(after))
	case !quota.Equals(after.Status.Hard, after.Spec.Hard):
		q.Add(requestFor(after))
	case !charged:
		q.AddAfter(requestFor(after), second)
	}
}

// handler enqueues the quotas that get something back.
func (r *reconciler) handler(of schema.GroupResource) handler.EventHandler {
	out := handler.Funcs{DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
		r.enqueue(ctx, q, of, e.Object, settle)
	}}
	switch of {
	case corev1.Resource("pods"):
		out.UpdateFunc = func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
			if pod.IsTerminal(after) && !pod.IsTerminal(before) || pod.Resizing(before) && !pod.Resizing(after) {
				r.enqueue(ctx, q, of, after, settle)
			}
			if end, leaving := usage.Expires(after); leaving && before.DeletionTimestamp == nil {
				r.enqueue(ctx, q, of, after, end.Sub(r.cfg.Clock.Now())+time.Second)
			}
		}
	case corev1.Resource("services"):
		out.UpdateFunc = func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*corev1.Service), e.ObjectNew.(*corev1.Service)
			if before.Spec.Type != after.Spec.Type || len(before.Spec.Ports) != len(after.Spec.Ports) {
				r.enqueue(ctx, q, of, after, settle)
			}
		}
	}
	return out
}

// enqueue adds the quotas of an object's namespace that limit what it uses. Mostly there is none.
func (r *reconciler) enqueue(
	ctx context.Context, q queue, of schema.GroupResource, object client.Object, after time.Duration,
) {
	var quotas corev1.ResourceQuotaList
	if err := r.reader.List(ctx, &quotas, client.InNamespace(object.GetNamespace())); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Could not list ResourceQuotas", "namespace", object.GetNamespace())
		return
	}
	for i := range quotas.Items {
		if len(r.measures.Get(of).MatchingResources(quota.ResourceNames(quotas.Items[i].Spec.Hard))) > 0 {
			q.AddAfter(requestFor(&quotas.Items[i]), after)
		}
	}
}
