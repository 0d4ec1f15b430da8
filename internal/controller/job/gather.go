package job

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/objects/claim"
	"github.com/everynode/everynode/internal/objects/job"
)

// ownerIndex finds pods by claim.Key.
const ownerIndex = "job-controller/owner"

func byOwner(object client.Object) []string { return []string{claim.Key(object)} }

// gather lists the pods of a Job, and takes and lets go pods on the way.
func (r *reconciler) gather(ctx context.Context, j *batchv1.Job) ([]*corev1.Pod, error) {
	own, err := r.own(ctx, j)
	if err != nil || job.Finished(j) != nil {
		return own, err
	}
	selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector)
	if err != nil {
		// The API server refuses such selectors.
		return nil, fmt.Errorf("read the selector of Job %s: %w", klog.KObj(j), err)
	}
	nobodys, err := r.list(ctx, j.Namespace, claim.Nobody)
	if err != nil {
		return nil, err
	}
	defer r.pods.Begin()()
	pods, err := claim.Settle(claim.Owner[*corev1.Pod]{
		Object: j, Kind: controllerKind, Selector: selector, Finalizers: []string{batchv1.JobTrackingFinalizer},
		Live: func() (metav1.Object, error) { return r.writer.GetJob(ctx, j.Namespace, j.Name) },
		Patch: func(p *corev1.Pod, patch []byte) (*corev1.Pod, error) {
			return r.writer.PatchPod(ctx, p.Namespace, p.Name, patch)
		},
		Adopted: func(p *corev1.Pod) { r.pods.Created(j.UID, p) }, // new among the Job's own
	}, append(own, nobodys...))
	if err != nil {
		return nil, fmt.Errorf("claim the pods of Job %s: %w", klog.KObj(j), err)
	}
	return pods, nil
}

// own lists the pods that the Job controls, with what it has just written.
func (r *reconciler) own(ctx context.Context, j *batchv1.Job) ([]*corev1.Pod, error) {
	cached, err := r.list(ctx, j.Namespace, string(j.UID))
	return r.pods.Overlay(j.UID, cached), err
}

// list lists the pods that an owner controls.
func (r *reconciler) list(ctx context.Context, namespace, owner string) ([]*corev1.Pod, error) {
	return ownedPods(ctx, r.reader, namespace, owner)
}

func ownedPods(ctx context.Context, reader client.Reader, namespace, owner string) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := reader.List(ctx, &list, client.InNamespace(namespace),
		client.MatchingFields{ownerIndex: owner}); err != nil {
		return nil, fmt.Errorf("list the pods of %s in namespace %s: %w", owner, namespace, err)
	}
	out := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}
