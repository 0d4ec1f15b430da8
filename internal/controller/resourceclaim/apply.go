package resourceclaim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/resourceclaim/plan"
)

// conflictPause is how long a write that met a newer version waits for the cache.
const conflictPause = 100 * time.Millisecond

// reconcilePod makes the claims of a pod.
func (l *loop) reconcilePod(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var pod corev1.Pod
	if err := l.reader.Get(ctx, key.NamespacedName, &pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if len(pod.Spec.ResourceClaims) == 0 {
		return ctrl.Result{}, nil
	}
	in, err := l.gather(ctx, &pod)
	if err != nil {
		return ctrl.Result{}, err
	}
	return retried(l.serve(ctx, &pod, plan.Pod(in)))
}

// gather finds what a pod's claims are to be made of, and which are there.
func (l *loop) gather(ctx context.Context, pod *corev1.Pod) (plan.PodInput, error) {
	in := plan.PodInput{
		Pod:       pod,
		Claims:    map[string]*resourcev1.ResourceClaim{},
		Templates: map[string]*resourcev1.ResourceClaimTemplate{},
	}
	names := map[string]bool{}
	for name := range resourceclaim.PodClaims(pod) {
		names[name] = true
	}
	for i := range pod.Spec.ResourceClaims {
		entry := &pod.Spec.ResourceClaims[i]
		if entry.ResourceClaimTemplateName == nil {
			continue
		}
		names[plan.Name(pod, entry)] = true
		template := &resourcev1.ResourceClaimTemplate{}
		found, err := l.read(ctx, pod.Namespace, *entry.ResourceClaimTemplateName, template)
		if err != nil {
			return in, err
		}
		if found {
			in.Templates[template.Name] = template
		}
	}
	for name := range names {
		claim := &resourcev1.ResourceClaim{}
		found, err := l.read(ctx, pod.Namespace, name, claim)
		if err != nil {
			return in, err
		}
		if found {
			in.Claims[name] = claim
		}
	}
	return in, nil
}

func (l *loop) read(ctx context.Context, namespace, name string, into client.Object) (bool, error) {
	err := l.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %T %s/%s: %w", into, namespace, name, err)
	}
	return true, nil
}

// serve does what was decided for a pod.
func (l *loop) serve(ctx context.Context, pod *corev1.Pod, d plan.PodDecision) error {
	logger, claims := klog.FromContext(ctx), l.cfg.Client.ResourceV1().ResourceClaims(pod.Namespace)
	for _, claim := range d.Create {
		_, err := claims.Create(ctx, claim, metav1.CreateOptions{})
		switch {
		case err == nil:
			logger.V(3).Info("Made claim", "pod", klog.KObj(pod), "claim", claim.Name)
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return nil
		case apierrors.IsAlreadyExists(err): // The cache is behind. The names are written when it shows whose the claim is.
			return nil
		default:
			err = fmt.Errorf("make ResourceClaim %s: %w", klog.KObj(claim), err)
			l.event(pod, err.Error())
			return err
		}
	}
	if len(d.Names) > 0 {
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": pod.UID},
			"status":   map[string]any{"resourceClaimStatuses": d.Names},
		})
		if err != nil {
			return fmt.Errorf("encode the claims of pod %s: %w", klog.KObj(pod), err)
		}
		if _, err := l.cfg.Client.CoreV1().Pods(pod.Namespace).Patch(
			ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status",
		); err != nil {
			return fmt.Errorf("write the claims of pod %s: %w", klog.KObj(pod), err)
		}
		logger.V(3).Info("Wrote claims of pod", "pod", klog.KObj(pod), "claims", len(d.Names))
	}
	for _, claim := range d.Reserve {
		if _, err := claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("keep ResourceClaim %s for pod %s: %w", klog.KObj(claim), pod.Name, err)
		}
		logger.V(3).Info("Kept claim for pod", "pod", klog.KObj(pod), "claim", claim.Name)
	}
	if text := d.Text(); text != "" {
		l.event(pod, text)
	}
	return nil
}

func (l *loop) event(pod *corev1.Pod, text string) {
	if l.cfg.Events != nil {
		l.cfg.Events.Event(pod, corev1.EventTypeWarning, "FailedResourceClaimCreation", text)
	}
}

// retried makes of a conflict a second look without alarm: the cache is behind, or somebody else wrote.
func retried(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// reconcileClaim gives back what nobody uses.
func (l *loop) reconcileClaim(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	claim := &resourcev1.ResourceClaim{}
	if found, err := l.read(ctx, key.Namespace, key.Name, claim); err != nil || !found {
		return ctrl.Result{}, err
	}
	in := plan.ClaimInput{Claim: claim, Done: map[string]bool{}}
	for _, user := range claim.Status.ReservedFor {
		if !plan.IsPod(user) {
			continue
		}
		done, err := l.done(ctx, claim.Namespace, user.Name, user.UID)
		if err != nil {
			return ctrl.Result{}, err
		}
		in.Done[string(user.UID)] = done
	}
	if owner := metav1.GetControllerOfNoCopy(claim); owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1" {
		var err error
		in.OwnerDone, err = l.done(ctx, claim.Namespace, owner.Name, owner.UID)
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	decision := plan.Claim(in)
	klog.FromContext(ctx).V(2).Info("Decided", "claim", klog.KObj(claim), "reason", decision.Why)
	return retried(l.settle(ctx, claim, decision))
}

// done says whether a pod uses its claims no more. Before one counts as gone, the API is asked: the cache may not show
// it yet.
func (l *loop) done(ctx context.Context, namespace, name string, uid types.UID) (bool, error) {
	var pod corev1.Pod
	err := l.reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod)
	if err == nil && pod.UID == uid {
		return plan.Done(&pod), nil
	}
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read pod %s/%s, which uses a claim: %w", namespace, name, err)
	}
	live, err := l.cfg.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read pod %s/%s, which uses a claim: %w", namespace, name, err)
	}
	return live.UID != uid || plan.Done(live), nil
}

// settle does what was decided about a claim. Each write is over the version that was looked at.
func (l *loop) settle(ctx context.Context, claim *resourcev1.ResourceClaim, d plan.ClaimDecision) error {
	logger, claims := klog.FromContext(ctx), l.cfg.Client.ResourceV1().ResourceClaims(claim.Namespace)
	if d.Status != nil {
		written, err := claims.UpdateStatus(ctx, d.Status, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("write the status of ResourceClaim %s: %w", klog.KObj(claim), err)
		}
		logger.V(3).Info(
			"Wrote status of claim",
			"claim", klog.KObj(claim), "users", len(written.Status.ReservedFor), "allocated", written.Status.Allocation != nil,
		)
		claim = written
	}
	if d.Release {
		if _, err := claims.Update(ctx, plan.Released(claim), metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("take the finalizer off ResourceClaim %s: %w", klog.KObj(claim), err)
		}
		logger.V(3).Info("Took finalizer off claim", "claim", klog.KObj(claim))
	}
	if d.Delete {
		err := claims.Delete(ctx, claim.Name, metav1.DeleteOptions{
			Preconditions: metav1.NewUIDPreconditions(string(claim.UID)),
		})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete ResourceClaim %s of a pod that is done: %w", klog.KObj(claim), err)
		}
		logger.V(3).Info("Deleted claim", "claim", klog.KObj(claim), "reason", d.Why)
	}
	return nil
}
