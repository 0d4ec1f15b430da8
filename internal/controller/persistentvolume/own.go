package persistentvolume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/everynode/everynode/internal/controller/persistentvolume/plan"
)

// reconcilePod makes the claims of a pod's ephemeral volumes. One of the name that is not the pod's own is left alone:
// the scheduler says so at the pod.
func (c controller) reconcilePod(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := c.reader.Get(ctx, key.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	for _, claim := range plan.OwnClaims(&pod) {
		var there corev1.PersistentVolumeClaim
		err := c.reader.Get(ctx, client.ObjectKeyFromObject(claim), &there)
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("read claim %s: %w", klog.KObj(claim), err)
		}
		_, err = c.cfg.Ephemeral.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(
			ctx, claim, metav1.CreateOptions{},
		)
		switch {
		case err == nil:
			klog.FromContext(ctx).V(3).Info("Made claim of an ephemeral volume", "pod", klog.KObj(&pod), "claim", claim.Name)
		case apierrors.IsAlreadyExists(err): // the cache is behind
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return ctrl.Result{}, nil
		default:
			if c.cfg.Ephemeral.Events != nil {
				c.cfg.Ephemeral.Events.Event(
					&pod, corev1.EventTypeWarning, "FailedCreate",
					fmt.Sprintf("Error creating: claim %q of an ephemeral volume: %v", claim.Name, err),
				)
			}
			return ctrl.Result{}, fmt.Errorf("make claim %s of an ephemeral volume: %w", klog.KObj(claim), err)
		}
	}
	return ctrl.Result{}, nil
}

// podsOfClaim are the pods that own a claim which is gone or was changed.
func podsOfClaim(_ context.Context, claim client.Object) []ctrl.Request {
	if ref := metav1.GetControllerOfNoCopy(claim); ref != nil && ref.Kind == "Pod" {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: claim.GetNamespace(), Name: ref.Name}}}
	}
	return nil
}

// hasOwnClaims passes on only pods with ephemeral volumes.
func hasOwnClaims(o client.Object) bool { return len(plan.OwnClaims(o.(*corev1.Pod))) > 0 }

var claimsOfPods = handler.EnqueueRequestsFromMapFunc(podsOfClaim)
