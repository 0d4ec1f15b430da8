package beside

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// copyOf is the UID of the DaemonSet of which a rollout keeps the revision; "" if none does.
func copyOf(r *appsv1.ControllerRevision) types.UID {
	ref := metav1.GetControllerOfNoCopy(r)
	if ref == nil || ref.Kind != "DaemonSetRollout" {
		return ""
	}
	return types.UID(r.Labels[rollouts.OwnerLabel])
}

// rolloutOf is the DaemonSet's own rollout; nil if there is none.
func (s *seen) rolloutOf(ds *appsv1.DaemonSet) *v1alpha1.DaemonSetRollout {
	r := s.rollouts[types.NamespacedName{Namespace: ds.Namespace, Name: ds.Name}]
	if r == nil || r.Labels[rollouts.OwnerLabel] != string(ds.UID) {
		return nil
	}
	return r
}

// keepStable keeps a copy of the stable revision, which kube-controller-manager deletes when no pod has it: while the
// last step soaks none has, and the way back must not be lost. It drops copies of what is neither stable nor the
// target.
func (g *Guest) keepStable(ctx context.Context, s *seen, ds *appsv1.DaemonSet) error {
	rollout := s.rolloutOf(ds)
	if rollout == nil || !admit.Taken(ds) {
		return nil // with the rollout its copies go
	}
	stable := content.TemplateOf(rollout.Status.StableRevision)
	kept := false
	for _, r := range s.copies[ds.UID] {
		switch history.HashOf(r) {
		case stable:
			kept = true
		case content.TemplateOf(rollout.Status.TargetRevision):
		default:
			err := g.client.AppsV1().ControllerRevisions(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &r.UID},
			})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete the copy %s/%s: %w", r.Namespace, r.Name, err)
			}
		}
	}
	if kept || stable == "" {
		return nil
	}
	for _, r := range s.revisions[ds.UID] {
		if history.HashOf(r) == stable {
			return g.copyRevision(ctx, ds, rollout, r)
		}
	}
	klog.FromContext(ctx).Info("The stable revision is gone, and there is no copy of it",
		"daemonSet", klog.KObj(ds), "revision", stable)
	return nil
}

// copyRevision keeps a revision for as long as the rollout is there.
func (g *Guest) copyRevision(
	ctx context.Context, ds *appsv1.DaemonSet, rollout *v1alpha1.DaemonSetRollout, r *appsv1.ControllerRevision,
) error {
	hash := history.HashOf(r)
	kept := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: r.Namespace, Name: history.Name("everynode-"+ds.Name, hash),
			Labels: map[string]string{
				appsv1.ControllerRevisionHashLabelKey: hash, rollouts.OwnerLabel: string(ds.UID),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "DaemonSetRollout", Name: rollout.Name, UID: rollout.UID,
				Controller: ptr.To(true),
			}},
		},
		Data: r.Data, Revision: r.Revision,
	}
	_, err := g.client.AppsV1().ControllerRevisions(r.Namespace).Create(ctx, kept,
		metav1.CreateOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep revision %s of DaemonSet %s/%s: %w", hash, ds.Namespace, ds.Name, err)
	}
	return nil
}
