package persistentvolume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/objects/volume"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func addClaimsOf(pod client.Object, q queue) {
	for i := range pod.(*corev1.Pod).Spec.Volumes {
		if name := volume.ClaimName(pod.GetName(), &pod.(*corev1.Pod).Spec.Volumes[i]); name != "" {
			q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}})
		}
	}
}

// addClaim enqueues the claim that a volume names.
func addClaim(v *corev1.PersistentVolume, q queue) {
	if ref := v.Spec.ClaimRef; ref != nil {
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}})
	}
}

func (c controller) volumeCreated(ctx context.Context, e event.CreateEvent, q queue) {
	c.offer(ctx, e.Object.(*corev1.PersistentVolume), q)
}

func (c controller) volumeUpdated(ctx context.Context, e event.UpdateEvent, q queue) {
	was, is := e.ObjectOld.(*corev1.PersistentVolume), e.ObjectNew.(*corev1.PersistentVolume)
	addClaim(was, q)
	c.offer(ctx, is, q)
}

func (c controller) volumeDeleted(_ context.Context, e event.DeleteEvent, q queue) {
	addClaim(e.Object.(*corev1.PersistentVolume), q)
}

// offer enqueues the claims for which a volume is news: the one that it names, those that name it, and if nobody has it
// those without a volume for which it is good.
func (c controller) offer(ctx context.Context, v *corev1.PersistentVolume, q queue) {
	addClaim(v, q)
	if v.Spec.ClaimRef != nil {
		return
	}
	c.offerToNaming(ctx, v, q)
	if v.Status.Phase != corev1.VolumeAvailable || c.waits(ctx, volume.Class(v)) {
		return
	}
	var list corev1.PersistentVolumeClaimList
	if err := c.reader.List(ctx, &list, client.MatchingFields{byWish: volume.Class(v)},
		client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Could not find the claims for which a volume is good", "volume", v.Name)
		return
	}
	for i := range list.Items {
		if claim := &list.Items[i]; volume.Want(claim).Takes(v) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
}

// waits says whether the scheduler finds the volumes of a class, so that a volume that nobody has is news for none of
// its claims.
func (c controller) waits(ctx context.Context, name string) bool {
	var class storagev1.StorageClass
	return name != "" && c.reader.Get(ctx, types.NamespacedName{Name: name}, &class) == nil && volume.Waits(&class)
}

func (c controller) offerToNaming(ctx context.Context, v *corev1.PersistentVolume, q queue) {
	var list corev1.PersistentVolumeClaimList
	if err := c.reader.List(ctx, &list, client.MatchingFields{byName: v.Name}, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Error(err, "Could not find the claims that name a volume", "volume", v.Name)
		return
	}
	for i := range list.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
}

// claimsOfClass are the claims without a volume that want a class, or would get it.
func (c controller) claimsOfClass(ctx context.Context, class client.Object) (out []ctrl.Request) {
	wishes := []string{class.GetName()}
	if volume.IsDefaultClass(class.(*storagev1.StorageClass)) {
		wishes = append(wishes, "")
	}
	for _, wish := range wishes {
		var list corev1.PersistentVolumeClaimList
		if err := c.reader.List(ctx, &list, client.MatchingFields{byWish: wish}, client.UnsafeDisableDeepCopy); err != nil {
			klog.FromContext(ctx).Error(err, "Could not find the claims that want a class", "class", class.GetName())
			continue
		}
		for i := range list.Items {
			out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}

// volumesOfClaim are the volumes that name a claim, and the one that it names.
func (c controller) volumesOfClaim(ctx context.Context, claim client.Object) (out []ctrl.Request) {
	var list corev1.PersistentVolumeList
	if err := c.reader.List(
		ctx, &list, client.MatchingFields{byClaim: claim.GetNamespace() + "/" + claim.GetName()},
		client.UnsafeDisableDeepCopy,
	); err != nil {
		klog.FromContext(ctx).Error(err, "Could not find the volumes of a claim", "claim", klog.KObj(claim))
		return nil
	}
	for i := range list.Items {
		out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}
