package statefulset

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/controller/statefulset/plan"
	"github.com/everynode/everynode/internal/loop/ownwrites"
	"github.com/everynode/everynode/internal/objects/claim"
	"github.com/everynode/everynode/internal/objects/pod"
)

// ownerIndex finds pods and revisions by claim.Key.
const ownerIndex = "statefulset-controller/owner"

func byOwner(object client.Object) []string { return []string{claim.Key(object)} }

// gather lists the pods of a set, and takes and lets go pods on the way. Only pods
// with a name of the set's are taken.
func (r *reconciler) gather(ctx context.Context, set *appsv1.StatefulSet) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		// The API server refuses such selectors.
		return nil, fmt.Errorf("read the selector of StatefulSet %s: %w", klog.KObj(set), err)
	}
	candidates, err := r.own(ctx, set)
	if err != nil {
		return nil, err
	}
	nobodys, err := r.list(ctx, set.Namespace, claim.Nobody)
	if err != nil {
		return nil, err
	}
	for _, p := range nobodys {
		if _, named := plan.Number(set.Name, p.Name); named {
			candidates = append(candidates[:len(candidates):len(candidates)], p)
		}
	}
	defer r.pods.Begin()()
	pods, err := claim.Settle(claim.Owner[*corev1.Pod]{
		Object: set, Kind: controllerKind, Selector: selector,
		Live: func() (metav1.Object, error) { return r.writer.GetSet(ctx, set.Namespace, set.Name) },
		Patch: func(p *corev1.Pod, patch []byte) (*corev1.Pod, error) {
			return r.writer.PatchPod(ctx, p.Namespace, p.Name, patch)
		},
		Adopted: func(p *corev1.Pod) { r.pods.Created(set.UID, p) }, // new among the set's own
	}, candidates)
	if err != nil {
		return nil, fmt.Errorf("claim the pods of StatefulSet %s: %w", klog.KObj(set), err)
	}
	return pods, nil
}

// own lists the pods that the set controls, with what was just written.
func (r *reconciler) own(ctx context.Context, set *appsv1.StatefulSet) ([]*corev1.Pod, error) {
	cached, err := r.list(ctx, set.Namespace, string(set.UID))
	return r.pods.Overlay(set.UID, cached), err
}

// list lists the pods that an owner controls.
func (r *reconciler) list(ctx context.Context, namespace, owner string) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := r.reader.List(ctx, &list, client.InNamespace(namespace),
		client.MatchingFields{ownerIndex: owner}); err != nil {
		return nil, fmt.Errorf("list the pods of %s in namespace %s: %w", owner, namespace, err)
	}
	out := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// revisionHandler notes which revisions are gone. What becomes of revisions by other
// hands is seen when something else happens.
func (r *reconciler) revisionHandler() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.revisions.Gone(e.Object.GetUID())
		},
	}
}

// podHandler enqueues the sets that a pod concerns.
func (r *reconciler) podHandler() handler.EventHandler {
	return ownwrites.Owned[*corev1.Pod]{Owner: setOf, Takers: r.takers, Matters: matters}.Handler(r.pods)
}

// takers names the sets that would take a pod.
func (r *reconciler) takers(ctx context.Context, p client.Object) (takers []types.NamespacedName, err error) {
	var sets appsv1.StatefulSetList
	if err := r.reader.List(ctx, &sets, client.InNamespace(p.GetNamespace())); err != nil {
		return nil, fmt.Errorf("list StatefulSets: %w", err)
	}
	for i := range sets.Items {
		s := &sets.Items[i]
		if _, named := plan.Number(s.Name, p.GetName()); named && claim.Selects(s.Spec.Selector, p) {
			takers = append(takers, client.ObjectKeyFromObject(s))
		}
	}
	return takers, nil
}

// setOf names the set that controls a pod, if one does.
func setOf(p metav1.Object) (types.NamespacedName, bool) {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != controllerKind.Kind {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: p.GetNamespace(), Name: ref.Name}, true
}

// matters says whether a pod changed in what sets depend on.
func matters(before, after *corev1.Pod) bool {
	return before.UID != after.UID || claim.Key(before) != claim.Key(after) ||
		before.Status.Phase != after.Status.Phase || pod.IsReady(before) != pod.IsReady(after) ||
		pod.IsTerminating(before) != pod.IsTerminating(after) || !maps.Equal(before.Labels, after.Labels)
}
