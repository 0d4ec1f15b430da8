package job

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/loop/ownwrites"
	"github.com/everynode/everynode/internal/objects/claim"
	"github.com/everynode/everynode/internal/objects/pod"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// together is how long news of pods is collected: pods of a Job often end at about
// the same time, and each turn writes the status.
const together = 100 * time.Millisecond

// podHandler enqueues the Jobs that a pod concerns.
func (r *reconciler) podHandler() handler.EventHandler {
	return ownwrites.Owned[*corev1.Pod]{Owner: jobOf, Takers: r.takers, Matters: matters, Together: together}.Handler(
		r.pods,
	)
}

// takers names the Jobs that would take a pod.
func (r *reconciler) takers(ctx context.Context, p client.Object) (takers []types.NamespacedName, err error) {
	var jobs batchv1.JobList
	if err := r.reader.List(ctx, &jobs, client.InNamespace(p.GetNamespace())); err != nil {
		return nil, fmt.Errorf("list Jobs: %w", err)
	}
	for i := range jobs.Items {
		if j := &jobs.Items[i]; claim.Selects(j.Spec.Selector, p) {
			takers = append(takers, client.ObjectKeyFromObject(j))
		}
	}
	return takers, nil
}

// jobOf names the Job that controls a pod, if one does.
func jobOf(p metav1.Object) (types.NamespacedName, bool) {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil || ref.Kind != controllerKind.Kind || ref.APIVersion != controllerKind.GroupVersion().String() {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: p.GetNamespace(), Name: ref.Name}, true
}

// matters says whether a pod changed in what Jobs depend on.
func matters(before, after *corev1.Pod) bool {
	return before.UID != after.UID || claim.Key(before) != claim.Key(after) ||
		before.Status.Phase != after.Status.Phase ||
		pod.IsReady(before) != pod.IsReady(after) ||
		pod.IsTerminating(before) != pod.IsTerminating(after) ||
		pod.Restarts(before) != pod.Restarts(after) ||
		!slices.Equal(before.Finalizers, after.Finalizers) ||
		!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)
}
