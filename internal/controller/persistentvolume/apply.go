package persistentvolume

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/internal/controller/persistentvolume/plan"
)

// conflictPause is how long a write that met a newer version waits for the cache.
const conflictPause = 100 * time.Millisecond

// apply writes what was decided, in its order. Each write is refused if the object is no longer as it was when it was
// decided about.
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
	klog.FromContext(ctx).V(3).Info(
		"Wrote claim", "claim", klog.KObj(claim), "status", w.Status, "phase", claim.Status.Phase,
	)
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
	if _, err := c.cfg.VolumeProtection.Client.CoreV1().PersistentVolumes().
		Update(ctx, next, metav1.UpdateOptions{}); err != nil {
		return false, fmt.Errorf("write the finalizers of PersistentVolume %s: %w", v.Name, err)
	}
	klog.FromContext(ctx).V(3).Info("Wrote finalizers", "volume", v.Name, "finalizers", finalizers)
	return true, nil
}

// protectClaim is like protectVolume for a claim. Before a claim goes, the API is asked for pods: the cache may not
// show one that has just got its node.
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
	if _, err := c.cfg.ClaimProtection.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(
		ctx, next, metav1.UpdateOptions{},
	); err != nil {
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
	if c.unused.take(claim, time.Now()) {
		return false, nil
	}
	// What is known of the other claims that are to go is known before the pods are listed.
	var claims corev1.PersistentVolumeClaimList
	if err := c.reader.List(ctx, &claims, client.InNamespace(claim.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list claims beside %s: %w", klog.KObj(claim), err)
	}
	listed := time.Now()
	live, err := c.cfg.ClaimProtection.Client.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list pods that may use claim %s: %w", klog.KObj(claim), err)
	}
	used := map[string]bool{}
	for i := range live.Items {
		for _, name := range plan.UsedBy(&live.Items[i]) {
			used[name] = true
		}
	}
	c.unused.keep(claims.Items, used, listed)
	return used[claim.Name], nil
}

// unusedFor is how long it counts that no pod used a claim.
const unusedFor = 5 * time.Second

// unused are claims that were to go when the pods of their namespace were listed, and that none of these used. Whoever
// deletes ten thousand claims does not have the pods listed ten thousand times.
type unused struct {
	mu     sync.Mutex
	listed time.Time
	claims map[types.UID]bool
}

// keep replaces what is known by a list.
func (u *unused) keep(claims []corev1.PersistentVolumeClaim, used map[string]bool, listed time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.listed, u.claims = listed, map[types.UID]bool{}
	for i := range claims {
		if c := &claims[i]; c.DeletionTimestamp != nil && !used[c.Name] {
			u.claims[c.UID] = true
		}
	}
}

// take says whether no pod used the claim a moment ago. It says so once.
func (u *unused) take(claim *corev1.PersistentVolumeClaim, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	known := u.claims[claim.UID] && now.Sub(u.listed) < unusedFor
	delete(u.claims, claim.UID)
	return known
}

func anyUses(pods []corev1.Pod, claim string) bool {
	for i := range pods {
		if plan.Uses(&pods[i], claim) {
			return true
		}
	}
	return false
}
