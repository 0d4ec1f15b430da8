package persistentvolume

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/controller/persistentvolume/plan"
)

// conflictPause is how long a write that met a newer version waits for the cache.
const conflictPause = 100 * time.Millisecond

// apply writes what was decided, in its order. Each write is refused if the object is no longer as it was when it was decided about.
func (c controller) apply(ctx context.Context, about runtime.Object, d plan.Decision) error {
	var volumeVersion, claimVersion string
	for _, w := range d.Writes {
		var err error
		if w.Volume != nil {
			volumeVersion, err = c.writeVolume(ctx, w, volumeVersion)
		} else {
			claimVersion, err = c.writeClaim(ctx, w, claimVersion)
		}
		if err != nil {
			return err
		}
	}
	if c.cfg.Binder.Events == nil {
		return nil
	}
	for _, e := range d.Events {
		kind := corev1.EventTypeNormal
		if e.Warning {
			kind = corev1.EventTypeWarning
		}
		c.cfg.Binder.Events.Event(about, kind, e.Reason, e.Message)
	}
	return nil
}

// writeVolume writes a volume, or its status, over the version that the write before it made.
func (c controller) writeVolume(ctx context.Context, w plan.Write, version string) (string, error) {
	v := w.Volume.DeepCopy()
	if version != "" {
		v.ResourceVersion = version
	}
	write := c.cfg.Binder.Client.CoreV1().PersistentVolumes().Update
	if w.Status {
		write = c.cfg.Binder.Client.CoreV1().PersistentVolumes().UpdateStatus
	}
	written, err := write(ctx, v, metav1.UpdateOptions{})
	if err != nil {
		return "", fmt.Errorf("write PersistentVolume %s (status: %v): %w", v.Name, w.Status, err)
	}
	klog.FromContext(ctx).V(3).Info("Wrote volume", "volume", v.Name, "status", w.Status, "phase", v.Status.Phase)
	return written.ResourceVersion, nil
}

func (c controller) writeClaim(ctx context.Context, w plan.Write, version string) (string, error) {
	claim := w.Claim.DeepCopy()
	if version != "" {
		claim.ResourceVersion = version
	}
	write := c.cfg.Binder.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update
	if w.Status {
		write = c.cfg.Binder.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus
	}
	written, err := write(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return "", fmt.Errorf("write claim %s (status: %v): %w", klog.KObj(claim), w.Status, err)
	}
	klog.FromContext(ctx).V(3).Info("Wrote claim", "claim", klog.KObj(claim), "status", w.Status, "phase", claim.Status.Phase)
	return written.ResourceVersion, nil
}

// protectVolume gives a volume its finalizer, or takes it away from one that nobody has and that is to go. It
// says whether it wrote.
func (c controller) protectVolume(ctx context.Context, v *corev1.PersistentVolume) (bool, error) {
	finalizers, changed := plan.ProtectVolume(v)
	if !changed {
		return false, nil
	}
	next := v.DeepCopy()
	next.Finalizers = finalizers
	if _, err := c.cfg.VolumeProtection.Client.CoreV1().PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return false, fmt.Errorf("write the finalizers of PersistentVolume %s: %w", v.Name, err)
	}
	klog.FromContext(ctx).V(3).Info("Wrote finalizers", "volume", v.Name, "finalizers", finalizers)
	return true, nil
}

// protectClaim is like protectVolume for a claim. Before a claim goes, the API is asked for pods: the cache may not show one that has just
// got its node.
func (c controller) protectClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	if _, changed := plan.ProtectClaim(claim, false); !changed {
		return false, nil
	}
	used, err := c.inUse(ctx, claim)
	if err != nil {
		return false, err
	}
	finalizers, changed := plan.ProtectClaim(claim, used)
	if !changed {
		return false, nil
	}
	next := claim.DeepCopy()
	next.Finalizers = finalizers
	if _, err := c.cfg.ClaimProtection.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return false, fmt.Errorf("write the finalizers of claim %s: %w", klog.KObj(claim), err)
	}
	klog.FromContext(ctx).V(3).Info("Wrote finalizers", "claim", klog.KObj(claim), "finalizers", finalizers)
	return true, nil
}

func (c controller) inUse(ctx context.Context, claim *corev1.PersistentVolumeClaim) (bool, error) {
	pods, err := c.users(ctx, claim)
	if err != nil || anyUses(pods, claim.Name) || claim.DeletionTimestamp == nil {
		return err == nil, err
	}
	live, err := c.cfg.ClaimProtection.Client.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list pods that may use claim %s: %w", klog.KObj(claim), err)
	}
	return anyUses(live.Items, claim.Name), nil
}

func anyUses(pods []corev1.Pod, claim string) bool {
	for i := range pods {
		if plan.Uses(&pods[i], claim) {
			return true
		}
	}
	return false
}
