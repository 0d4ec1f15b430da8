package statefulset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/statefulset/plan"
)

// errLeaves is why a pod is not made whose claim is on its way out. Nothing tells when that is gone.
var errLeaves = errors.New("its claim cannot be used any more")

// leavesPause is how long a set waits before it looks again whether such a claim is gone. To wait longer each time
// would leave it without its pod for a quarter of an hour after the claim has gone.
const leavesPause = 2 * time.Second

// patient makes of a claim that leaves another look soon, and of nothing else.
func patient(result ctrl.Result, err error) (ctrl.Result, error) {
	if errors.Is(err, errLeaves) {
		return ctrl.Result{RequeueAfter: leavesPause}, nil
	}
	return result, err
}

// makeClaims makes what a new pod claims and has not yet. A claim that goes with an earlier pod of the name is waited
// for.
func (r *reconciler) makeClaims(ctx context.Context, set *appsv1.StatefulSet, pod string) error {
	for _, c := range plan.Claims(set, pod) {
		there, err := r.claim(ctx, set.Namespace, c.Name)
		if err != nil {
			return err
		}
		if there != nil {
			if why, leaves := plan.Leaves(there, pod); leaves {
				r.event(
					set, corev1.EventTypeWarning, "FailedCreate", "create Pod %s in StatefulSet %s failed error: %s", pod, set.Name,
					why,
				)
				return fmt.Errorf("make pod %s of StatefulSet %s: %w: %s", pod, klog.KObj(set), errLeaves, why)
			}
			continue
		}
		_, err = r.writer.CreateClaim(ctx, c)
		switch {
		case err == nil:
			klog.FromContext(ctx).V(3).Info("Created claim", "statefulSet", klog.KObj(set), "claim", c.Name)
			r.event(
				set, corev1.EventTypeNormal, "SuccessfulCreate", "create Claim %s Pod %s in StatefulSet %s success", c.Name, pod,
				set.Name,
			)
		case apierrors.IsAlreadyExists(err): // the cache is behind; the next look finds out what is there
			return fmt.Errorf("make claim %s of StatefulSet %s: %w", c.Name, klog.KObj(set), err)
		default:
			if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				r.event(
					set, corev1.EventTypeWarning, "FailedCreate",
					"create Claim %s for Pod %s in StatefulSet %s failed error: %v",
					c.Name, pod, set.Name, err,
				)
			}
			return fmt.Errorf("make claim %s of StatefulSet %s: %w", c.Name, klog.KObj(set), err)
		}
	}
	return nil
}

// claim is the claim of a name, nil if there is none.
func (r *reconciler) claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	var c corev1.PersistentVolumeClaim
	err := r.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &c)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return &c, nil
}

// settleClaims has the claims of pods belong to whom the set's policy says. A pod that is too many must not go before
// its claims are to go with it.
func (r *reconciler) settleClaims(ctx context.Context, set *appsv1.StatefulSet, pods []*corev1.Pod) error {
	if len(set.Spec.VolumeClaimTemplates) == 0 || set.DeletionTimestamp != nil {
		return nil
	}
	for _, p := range pods {
		for i := range set.Spec.VolumeClaimTemplates {
			c, err := r.claim(ctx, set.Namespace, plan.ClaimName(set.Spec.VolumeClaimTemplates[i].Name, p.Name))
			if err != nil {
				return err
			}
			if c == nil || c.DeletionTimestamp != nil {
				continue
			}
			refs, changed := plan.Owners(set, p, c)
			if !changed {
				continue
			}
			next := c.DeepCopy()
			next.OwnerReferences = refs
			if _, err := r.writer.UpdateClaim(ctx, next); err != nil {
				return fmt.Errorf("write whose claim %s is: %w", klog.KObj(c), err)
			}
			klog.FromContext(ctx).V(3).Info(
				"Wrote whose a claim is", "statefulSet", klog.KObj(set), "claim", klog.KObj(c), "owners", len(refs),
			)
		}
	}
	return nil
}

// CreateClaim implements writer.
func (w clientWriter) CreateClaim(ctx context.Context,
	c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	return w.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Create(ctx, c, metav1.CreateOptions{})
}

// UpdateClaim implements writer.
func (w clientWriter) UpdateClaim(ctx context.Context,
	c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	return w.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Update(ctx, c, metav1.UpdateOptions{})
}
