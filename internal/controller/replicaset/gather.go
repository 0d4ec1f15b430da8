package replicaset

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/replicaset/plan"
	"github.com/everynode/everynode/internal/objects/claim"
)

// ownerIndex finds pods and sets by claim.Key.
const ownerIndex = "replicaset-controller/owner"

var indexed = []client.Object{&corev1.Pod{}, &appsv1.ReplicaSet{}, &corev1.ReplicationController{}}

func byOwner(object client.Object) []string { return []string{claim.Key(object)} }

// gather reads what the decision about a set depends on, and takes and lets go
// pods on the way.
func (r *reconciler) gather(ctx context.Context, set *appsv1.ReplicaSet) (plan.Input, error) {
	in := plan.Input{Set: set, Now: r.clock.Now(), NoTerminating: r.kind.noTerminating}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		// The API server refuses such selectors.
		return in, fmt.Errorf("read the selector of %s %s: %w", r.kind.gvk.Kind, klog.KObj(set), err)
	}
	own, err := r.own(ctx, set)
	if err != nil {
		return in, err
	}
	nobodys, err := r.pods(ctx, set.Namespace, claim.Nobody)
	if err != nil {
		return in, err
	}
	defer r.wrote.Begin()()
	in.Pods, err = claim.Settle(claim.Owner[*corev1.Pod]{
		Object: set, Kind: r.kind.gvk, Selector: selector,
		Live: func() (metav1.Object, error) { return r.writer.GetSet(ctx, set.Namespace, set.Name) },
		Patch: func(p *corev1.Pod, patch []byte) (*corev1.Pod, error) {
			return r.writer.PatchPod(ctx, p.Namespace, p.Name, patch)
		},
		Adopted: func(p *corev1.Pod) { r.wrote.Created(set.UID, p) }, // new among the set's own
	}, append(own, nobodys...))
	if err != nil {
		return in, fmt.Errorf("claim the pods of %s %s: %w", r.kind.gvk.Kind, klog.KObj(set), err)
	}
	if plan.TooMany(in) {
		in.Related, err = r.related(ctx, set, in.Pods)
	}
	return in, err
}

// own lists the pods that the set controls, with what it has just written.
func (r *reconciler) own(ctx context.Context, set *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	cached, err := r.pods(ctx, set.Namespace, string(set.UID))
	return r.wrote.Overlay(set.UID, cached), err
}

// pods lists the pods that an owner controls.
func (r *reconciler) pods(ctx context.Context, namespace, owner string) ([]*corev1.Pod, error) {
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

// related lists the pods of all sets that have the same controller as this one.
func (r *reconciler) related(ctx context.Context, set *appsv1.ReplicaSet, own []*corev1.Pod) ([]*corev1.Pod, error) {
	out := own
	ref := metav1.GetControllerOfNoCopy(set)
	if ref == nil {
		return out, nil
	}
	siblings, err := r.kind.list(ctx, r.reader, client.InNamespace(set.Namespace), client.MatchingFields{
		ownerIndex: string(ref.UID),
	})
	if err != nil {
		return nil, fmt.Errorf("list the sets beside %s %s: %w", r.kind.gvk.Kind, klog.KObj(set), err)
	}
	for _, s := range siblings {
		if s.UID != set.UID {
			pods, err := r.pods(ctx, s.Namespace, string(s.UID))
			if err != nil {
				return nil, err
			}
			out = append(out[:len(out):len(out)], pods...)
		}
	}
	return out, nil
}
