package replicaset

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/everynode/everynode/internal/loop/ownwrites"
	"github.com/everynode/everynode/internal/objects/claim"
	"github.com/everynode/everynode/internal/objects/pod"
)

// podHandler enqueues the sets that a pod concerns.
func (r *reconciler) podHandler() handler.EventHandler {
	return ownwrites.Owned[*corev1.Pod]{Owner: r.setOf, Takers: r.takers, Matters: r.matters}.Handler(r.wrote)
}

// takers names the sets that would take a pod.
func (r *reconciler) takers(ctx context.Context, p client.Object) (takers []types.NamespacedName, err error) {
	sets, err := r.kind.list(ctx, r.reader, client.InNamespace(p.GetNamespace()))
	if err != nil {
		return nil, fmt.Errorf("list sets of kind %s: %w", r.kind.gvk.Kind, err)
	}
	for _, s := range sets {
		if claim.Selects(s.Spec.Selector, p) {
			takers = append(takers, client.ObjectKeyFromObject(s))
		}
	}
	return takers, nil
}

// setOf names the set that controls a pod, if one does.
func (r *reconciler) setOf(p metav1.Object) (types.NamespacedName, bool) {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != r.kind.gvk.Kind {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: p.GetNamespace(), Name: ref.Name}, true
}

// matters says whether a pod changed in what sets depend on.
func (r *reconciler) matters(before, after *corev1.Pod) bool {
	a, _ := r.setOf(before)
	b, _ := r.setOf(after)
	return before.UID != after.UID || a != b ||
		(metav1.GetControllerOfNoCopy(before) == nil) != (metav1.GetControllerOfNoCopy(after) == nil) ||
		pod.IsReady(before) != pod.IsReady(after) ||
		pod.IsTerminal(before) != pod.IsTerminal(after) ||
		pod.IsTerminating(before) != pod.IsTerminating(after) ||
		!maps.Equal(before.Labels, after.Labels)
}
