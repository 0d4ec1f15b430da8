// Package persistentvolume binds claims to PersistentVolumes, says what becomes of volumes whose claims are gone, and
// keeps both from going while they are in use. Package plan decides; apply.go acts.
package persistentvolume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/controller/persistentvolume/plan"
	"github.com/everynode/everynode/internal/objects/volume"
)

// EventSource is the component that the controller's events are from.
const EventSource = "persistentvolume-controller"

// Indexes of the shared cache.
const (
	// byClaim finds the volumes that name a claim, by namespace/name; those that name none by their class, behind a slash.
	byClaim = "persistentvolume-controller/claim"
	// byUse finds the pods that use a claim, by namespace/name.
	byUse = "persistentvolume-controller/use"
	// byWish finds the claims without a volume by the class they want.
	byWish = "persistentvolume-controller/wish"
	// byName finds the claims that name a volume.
	byName = "persistentvolume-controller/name"
)

// Recorder tells users what happened to an object. A record.EventRecorder is one.
type Recorder interface {
	Event(object runtime.Object, eventtype, reason, message string)
}

// Account is whom something is written as.
type Account struct {
	Client kubernetes.Interface
	// Events may be nil.
	Events Recorder
}

// Config is what the controller needs.
type Config struct {
	// Binder binds; VolumeProtection and ClaimProtection keep what is in use; Ephemeral makes the claims of ephemeral
	// volumes. All are required.
	Binder, VolumeProtection, ClaimProtection, Ephemeral Account
}

// Add puts the controller under the manager, which runs it while it leads.
func Add(mgr manager.Manager, cfg Config) error {
	if cfg.Binder.Client == nil || cfg.VolumeProtection.Client == nil || cfg.ClaimProtection.Client == nil ||
		cfg.Ephemeral.Client == nil {
		return errors.New("persistentvolume: all clients are required")
	}
	if err := addIndexes(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	c := controller{reader: mgr.GetClient(), cfg: cfg, unused: &unused{}}
	err := errors.Join(
		ctrl.NewControllerManagedBy(mgr).Named("persistentvolumeclaim").For(&corev1.PersistentVolumeClaim{}).
			Watches(&corev1.PersistentVolume{}, handler.Funcs{
				CreateFunc: c.volumeCreated,
				UpdateFunc: c.volumeUpdated,
				DeleteFunc: c.volumeDeleted,
			}).
			Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(c.claimsOfClass)).
			Watches(&corev1.Pod{}, handler.Funcs{CreateFunc: podCreated, UpdateFunc: podUpdated, DeleteFunc: podDeleted}).
			Complete(reconcile.Func(c.reconcileClaim)),
		ctrl.NewControllerManagedBy(mgr).Named("persistentvolume").For(&corev1.PersistentVolume{}).
			Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(c.volumesOfClaim)).
			Complete(reconcile.Func(c.reconcileVolume)),
		ctrl.NewControllerManagedBy(mgr).Named("ephemeral-volume").
			For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(hasOwnClaims))).
			Watches(&corev1.PersistentVolumeClaim{}, claimsOfPods).
			Complete(reconcile.Func(c.reconcilePod)),
	)
	if err != nil {
		return fmt.Errorf("add the controller of PersistentVolumes: %w", err)
	}
	return nil
}

func addIndexes(to client.FieldIndexer) error {
	ctx := context.Background()
	return errors.Join(
		to.IndexField(ctx, &corev1.PersistentVolume{}, byClaim, func(o client.Object) []string {
			v := o.(*corev1.PersistentVolume)
			if ref := v.Spec.ClaimRef; ref != nil {
				return []string{ref.Namespace + "/" + ref.Name}
			}
			return []string{"/" + volume.Class(v)}
		}),
		to.IndexField(ctx, &corev1.Pod{}, byUse, func(o client.Object) []string { return claimsOf(o.(*corev1.Pod)) }),
		to.IndexField(ctx, &corev1.PersistentVolumeClaim{}, byWish, func(o client.Object) []string {
			if c := o.(*corev1.PersistentVolumeClaim); c.Spec.VolumeName == "" {
				return []string{volume.ClaimClass(c)}
			}
			return nil
		}),
		to.IndexField(ctx, &corev1.PersistentVolumeClaim{}, byName, func(o client.Object) []string {
			if name := o.(*corev1.PersistentVolumeClaim).Spec.VolumeName; name != "" {
				return []string{name}
			}
			return nil
		}),
	)
}

// claimsOf are the claims that a pod uses, as namespace/name.
func claimsOf(p *corev1.Pod) (out []string) {
	for i := range p.Spec.Volumes {
		if name := volume.ClaimName(p.Name, &p.Spec.Volumes[i]); name != "" {
			out = append(out, p.Namespace+"/"+name)
		}
	}
	return out
}

type controller struct {
	reader client.Reader // of shared objects, which are never changed
	cfg    Config
	unused *unused
}

func (c controller) reconcileClaim(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var claim corev1.PersistentVolumeClaim
	if err := c.reader.Get(ctx, key.NamespacedName, &claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if wrote, err := c.protectClaim(ctx, &claim); wrote || err != nil {
		return retried(err) // what was written comes back
	}
	in, err := c.gather(ctx, &claim)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision := plan.Claim(in)
	klog.FromContext(ctx).V(2).Info(
		"Decided", "claim", klog.KObj(&claim), "writes", len(decision.Writes), "reason", decision.Why,
	)
	return retried(c.apply(ctx, &claim, decision))
}

// retried makes of a conflict a second look without alarm: the cache is behind, or somebody else wrote.
func retried(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictPause}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// gather finds what decides about a claim.
func (c controller) gather(ctx context.Context, claim *corev1.PersistentVolumeClaim) (plan.ClaimInput, error) {
	in := plan.ClaimInput{Claim: claim}
	if claim.Spec.VolumeName != "" {
		named, err := c.named(ctx, claim)
		in.Named = named
		return in, err
	}
	if err := c.classes(ctx, &in); err != nil {
		return in, err
	}
	keys := []string{claim.Namespace + "/" + claim.Name}
	if !volume.Waits(in.Class) { // otherwise the scheduler chooses among them
		keys = append(keys, "/"+volume.ClaimClass(claim))
	}
	for _, of := range keys {
		var list corev1.PersistentVolumeList
		if err := c.reader.List(ctx, &list, client.MatchingFields{byClaim: of}, client.UnsafeDisableDeepCopy); err != nil {
			return in, fmt.Errorf("list PersistentVolumes for claim %s: %w", klog.KObj(claim), err)
		}
		for i := range list.Items {
			in.Volumes = append(in.Volumes, &list.Items[i])
		}
	}
	pods, err := c.users(ctx, claim)
	for _, p := range pods {
		if p.Spec.NodeName == "" {
			in.Pods = append(in.Pods, p.Name)
		}
	}
	return in, err
}

// named is the volume that a claim names, nil if there is none. Before a claim is said to have lost it, the API is
// asked: the cache may not show yet that it was made, or that it was given to the claim.
func (c controller) named(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	name := claim.Spec.VolumeName
	v := &corev1.PersistentVolume{}
	err := c.reader.Get(ctx, types.NamespacedName{Name: name}, v)
	if volume.Bound(claim) && claim.Status.Phase != corev1.ClaimLost &&
		(apierrors.IsNotFound(err) || err == nil && plan.Misbound(v, claim)) {
		v, err = c.cfg.Binder.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, fmt.Errorf("read PersistentVolume %s: %w", name, err)
	}
	return v, nil
}

// classes finds the class that a claim names, or would get.
func (c controller) classes(ctx context.Context, in *plan.ClaimInput) error {
	if name := volume.ClaimClass(in.Claim); name != "" {
		var class storagev1.StorageClass
		if err := c.reader.Get(ctx, types.NamespacedName{Name: name}, &class); err == nil {
			in.Class = &class
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("read StorageClass %s: %w", name, err)
		}
		return nil
	}
	if volume.HasClass(in.Claim) {
		return nil
	}
	var list storagev1.StorageClassList
	if err := c.reader.List(ctx, &list); err != nil {
		return fmt.Errorf("list StorageClasses: %w", err)
	}
	all := make([]*storagev1.StorageClass, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	in.Default = volume.DefaultClass(all)
	return nil
}

func (c controller) users(ctx context.Context, claim *corev1.PersistentVolumeClaim) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.reader.List(
		ctx, &list, client.MatchingFields{byUse: claim.Namespace + "/" + claim.Name}, client.UnsafeDisableDeepCopy,
	); err != nil {
		return nil, fmt.Errorf("list pods that use claim %s: %w", klog.KObj(claim), err)
	}
	return list.Items, nil
}

func (c controller) reconcileVolume(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	var v corev1.PersistentVolume
	if err := c.reader.Get(ctx, key.NamespacedName, &v); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if wrote, err := c.protectVolume(ctx, &v); wrote || err != nil {
		return retried(err) // what was written comes back
	}
	claim, err := c.claimOf(ctx, &v)
	if err != nil {
		return ctrl.Result{}, err
	}
	decision := plan.Volume(&v, claim)
	klog.FromContext(ctx).V(2).Info("Decided", "volume", v.Name, "writes", len(decision.Writes), "reason", decision.Why)
	return retried(c.apply(ctx, &v, decision))
}

// claimOf is the claim that a volume names, nil if it is gone. That the API says so decides, where something depends on
// it.
func (c controller) claimOf(ctx context.Context, v *corev1.PersistentVolume) (*corev1.PersistentVolumeClaim, error) {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		return nil, nil //nolint:nilnil // it names none
	}
	var cached corev1.PersistentVolumeClaim
	err := c.reader.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, &cached)
	if err == nil && cached.UID == ref.UID {
		return &cached, nil
	}
	if !plan.Gone(v) && (err == nil || apierrors.IsNotFound(err)) {
		return nil, nil //nolint:nilnil // it is gone
	}
	live, err := c.cfg.Binder.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case err == nil && live.UID == ref.UID:
		return live, nil
	case err == nil || apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // it is gone
	}
	return nil, fmt.Errorf("read claim %s/%s of PersistentVolume %s: %w", ref.Namespace, ref.Name, v.Name, err)
}

func podCreated(_ context.Context, e event.CreateEvent, q queue) { addClaimsOf(e.Object, q) }
func podDeleted(_ context.Context, e event.DeleteEvent, q queue) { addClaimsOf(e.Object, q) }

func podUpdated(_ context.Context, e event.UpdateEvent, q queue) {
	was, is := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
	if was.UID != is.UID || was.Spec.NodeName != is.Spec.NodeName || was.Status.Phase != is.Status.Phase {
		addClaimsOf(was, q)
		addClaimsOf(is, q)
	}
}
