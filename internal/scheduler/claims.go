package scheduler

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/fit/volumes"
	"github.com/everynode/everynode/internal/objects/volume"
	"github.com/everynode/everynode/internal/scheduler/placement"
	"github.com/everynode/everynode/internal/scheduler/queue"
)

// onStorage takes over what the API says of a claim, a volume or a class.
func (l *loop) onStorage(m message) {
	now := l.clock.Now()
	switch object := m.object.(type) {
	case *corev1.PersistentVolumeClaim:
		if m.deleted {
			l.cluster.DeleteClaim(object.Namespace, object.Name)
		} else {
			l.cluster.SetClaim(object)
		}
		l.queue.ClaimChanged(object.Namespace+"/"+object.Name, now)
	case *corev1.PersistentVolume:
		if m.deleted {
			l.cluster.DeleteVolume(object.Name)
			return
		}
		l.cluster.SetVolume(object)
		l.volumeChanged(object.Name)
	case *storagev1.StorageClass:
		if m.deleted {
			l.cluster.DeleteClass(object.Name)
			return
		}
		l.cluster.SetClass(object)
		l.queue.ChangedEverywhere(fit.VolumesChanged, now)
	}
}

// volumeChanged tells the pods that it may help that a volume is another one now, or can be had again.
func (l *loop) volumeChanged(name string) {
	host := l.cluster.OnlyHost(name)
	// Pods wait for nodes, and a node need not be called as its host is.
	if node := l.cluster.Node(host); host != "" && node != nil && node.Labels[corev1.LabelHostname] == host {
		l.queue.Changed(host, fit.VolumesChanged, l.clock.Now())
		return
	}
	l.queue.ChangedEverywhere(fit.VolumesChanged, l.clock.Now())
}

// claim has the claims of a pod get the volumes that go with the node which was found for it. The pod is tried again
// when they have them; until then its room on the node is kept from those that are not more important.
func (l *loop) claim(ctx context.Context, pod *fit.Pod, result placement.Result) {
	klog.FromContext(ctx).V(3).Info(
		"Pod waits for its volumes", "pod", klog.KObj(pod.Object), "node", result.Node, "claims", len(result.Uses),
	)
	l.nominated.Set(pod, result.Node)
	l.queue.Await(pod.UID, queue.Wait{For: fit.VolumesChanged, Claims: pod.ClaimKeys()}, l.clock.Now())
	for _, use := range result.Uses {
		if use.Volume != nil {
			l.cluster.Promise(use.Volume.Name, klog.KObj(use.Claim).String())
		}
	}
	l.binder.claim(pod, result.Node, result.Uses)
}

// onFailedClaiming takes back the volumes that were promised to a pod's claims, and its room, for others that wait for
// them, and tries the pod again.
func (l *loop) onFailedClaiming(ctx context.Context, m message) {
	for _, use := range m.uses {
		if use.Volume != nil {
			l.cluster.TakeBack(use.Volume.Name, klog.KObj(use.Claim).String())
			l.volumeChanged(use.Volume.Name)
		}
	}
	pod := l.queue.Get(m.uid)
	if pod == nil {
		return
	}
	l.release(pod.Object)
	l.queue.Abort(m.uid, l.clock.Now())
	if apierrors.IsNotFound(m.err) || apierrors.IsConflict(m.err) {
		klog.FromContext(ctx).V(2).Info("Giving claims their volumes was refused", "pod", klog.KObj(pod.Object), "err", m.err)
		return
	}
	l.binder.report(pod, corev1.PodReasonSchedulerError, m.err.Error(), nil)
}

// claim writes into each volume whose it is, and into each claim for which somebody is to make one, for which node.
// What says so already is not written.
func (b *binder) claim(pod *fit.Pod, nodeName string, uses []volumes.Use) {
	b.add(&b.bindings, func(ctx context.Context) {
		for _, use := range uses {
			if err := b.give(ctx, use, nodeName); err != nil {
				b.inbox.put(message{kind: kindClaiming, uid: pod.UID, err: err, uses: uses})
				return
			}
		}
	})
}

func (b *binder) give(ctx context.Context, use volumes.Use, nodeName string) error {
	switch {
	case use.Volume == nil && use.Claim.Annotations[volume.SelectedNode] == nodeName:
		return nil
	case use.Volume == nil:
		claim := use.Claim.DeepCopy()
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, volume.SelectedNode, nodeName)
		return b.writer.UpdateClaim(ctx, claim)
	case use.Volume.Spec.ClaimRef != nil && use.Volume.Spec.ClaimRef.UID == use.Claim.UID:
		return nil
	}
	v := use.Volume.DeepCopy()
	if !volume.IsFor(v, use.Claim) {
		metav1.SetMetaDataAnnotation(&v.ObjectMeta, volume.BoundByController, "yes")
	}
	v.Spec.ClaimRef = volume.Reference(use.Claim)
	return b.writer.UpdateVolume(ctx, v)
}

func (w clientWriter) UpdateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if _, err := w.client.CoreV1().PersistentVolumeClaims(claim.Namespace).
		Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the node of claim %s: %w", klog.KObj(claim), err)
	}
	return nil
}

func (w clientWriter) UpdateVolume(ctx context.Context, v *corev1.PersistentVolume) error {
	if _, err := w.client.CoreV1().PersistentVolumes().Update(ctx, v, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the claim of PersistentVolume %s: %w", v.Name, err)
	}
	return nil
}
