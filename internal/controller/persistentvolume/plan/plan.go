// Package plan decides how PersistentVolumes and the claims to them come together, and what becomes of volumes whose
// claims are gone.
//
//	claim, its class, the volumes that may be for it -> Claim  -> writes in their order, events
//	volume, the claim that it names                  -> Volume -> writes, events
//
// A binding is four writes: the volume names the claim, its status says Bound, the claim names the volume, its status
// says Bound. Each may be the last one before a crash; the next decision goes on from there. That a volume names the
// claim is what counts: two claims cannot both have it, because a write of a version that is not the newest is refused.
package plan

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/objects/volume"
)

// Write is one object as it should be, the whole or its status. Of the two one is set.
type Write struct {
	Volume *corev1.PersistentVolume
	Claim  *corev1.PersistentVolumeClaim
	Status bool
}

// Event is what users are told at the claim, or at the volume.
type Event struct {
	Warning         bool
	Reason, Message string
}

// Decision is what to do about one object.
type Decision struct {
	Writes []Write
	// Events are about the object that was decided about.
	Events []Event
	// Why says it for the log.
	Why string
}

// ClaimInput is what is known around a claim.
type ClaimInput struct {
	Claim *corev1.PersistentVolumeClaim
	// Class is that of the claim; nil if there is none of that name, or the claim names none.
	Class *storagev1.StorageClass
	// Default is the class of claims that name none; nil if there is none.
	Default *storagev1.StorageClass
	// Named is the volume that the claim names; nil if there is none.
	Named *corev1.PersistentVolume
	// Volumes are those that are kept for the claim, and those of its class that nobody has.
	Volumes []*corev1.PersistentVolume
	// Pods are the names of pods without a node that use the claim.
	Pods []string
}

// Claim decides about a claim.
func Claim(in ClaimInput) Decision {
	c := in.Claim
	_, bound := c.Annotations[volume.BindCompleted]
	switch {
	case bound:
		return boundClaim(in)
	case c.Spec.VolumeName != "":
		return namingClaim(in)
	}
	return openClaim(in)
}

// boundClaim is about one that was bound before. It stays bound, or is lost for good.
func boundClaim(in ClaimInput) Decision {
	c := in.Claim
	lost := func(reason, message string) Decision {
		return settle(c, corev1.ClaimLost, Event{true, reason, message}, "the claim has lost its volume")
	}
	switch v := in.Named; {
	case c.Spec.VolumeName == "":
		return lost("ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
	case v == nil:
		return lost("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
	case Misbound(v, c):
		return lost("ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
	}
	d := bind(in.Named, c, "the claim is bound")
	if has, there := c.Status.Capacity[corev1.ResourceStorage]; there && c.Spec.Resources.Requests.Storage().Cmp(has) > 0 {
		d.Events = append(d.Events, Event{
			false, "ExternalExpanding",
			"waiting for an external controller to expand this PVC; nothing here makes volumes grow",
		})
	}
	return d
}

// Misbound says whether the volume of a bound claim is another's.
func Misbound(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID != c.UID
}

// namingClaim is about one that asks for a certain volume.
func namingClaim(in ClaimInput) Decision {
	c, v := in.Claim, in.Named
	switch {
	case v == nil:
		return settle(c, corev1.ClaimPending, Event{}, "the volume that the claim names does not exist")
	case v.Spec.ClaimRef == nil:
		if why := volume.Unfit(v, c); why != "" {
			return settle(
				c, corev1.ClaimPending, Event{true, "VolumeMismatch", `Cannot bind to requested volume "` + v.Name + `": ` + why},
				why,
			)
		}
		return bind(v, c, "the claim names the volume")
	case volume.IsFor(v, c):
		return bind(v, c, "claim and volume name each other")
	}
	text := `volume "` + v.Name + `" already bound to a different claim.`
	return settle(c, corev1.ClaimPending, Event{true, "FailedBinding", text}, text)
}

// openClaim is about one that takes any volume that is good.
func openClaim(in ClaimInput) Decision {
	c, want := in.Claim, volume.Want(in.Claim)
	if v := want.Reserved(in.Volumes); v != nil {
		return bind(v, c, "the volume is kept for the claim")
	}
	waits := volume.Waits(in.Class)
	if !waits {
		if v := want.Best(in.Volumes, func(*corev1.PersistentVolume) bool { return true }); v != nil {
			return bind(v, c, "the volume wastes the least")
		}
	}
	if !volume.HasClass(c) && in.Default != nil {
		changed := c.DeepCopy()
		changed.Spec.StorageClassName = &in.Default.Name
		return Decision{Writes: []Write{{Claim: changed}}, Why: "the claim gets the default class"}
	}
	_, selected := c.Annotations[volume.SelectedNode]
	switch {
	case waits && !selected:
		return settle(c, corev1.ClaimPending, waiting(in.Pods), "the claim waits for a pod")
	case volume.ClaimClass(c) == "":
		return settle(
			c, corev1.ClaimPending,
			Event{false, "FailedBinding", "no persistent volumes available for this claim and no storage class is set"},
			"no volume is good for the claim",
		)
	}
	return provision(in)
}

func waiting(pods []string) Event {
	switch len(pods) {
	case 0:
		return Event{false, "WaitForFirstConsumer", "waiting for first consumer to be created before binding"}
	case 1:
		return Event{false, "WaitForPodScheduled", "waiting for pod " + pods[0] + " to be scheduled"}
	}
	return Event{
		false, "WaitForPodScheduled",
		"waiting for pods " + strings.Join(slices.Sorted(slices.Values(pods)), ",") + " to be scheduled",
	}
}

// provision asks whoever makes volumes of the class for one.
func provision(in ClaimInput) Decision {
	c := in.Claim
	switch {
	case in.Class == nil:
		return settle(
			c, corev1.ClaimPending,
			Event{true, "ProvisioningFailed", `storageclass.storage.k8s.io "` + volume.ClaimClass(c) + `" not found`},
			"the class does not exist",
		)
	case in.Class.Provisioner == volume.NoProvisioner:
		return settle(
			c, corev1.ClaimPending,
			Event{
				false, "FailedBinding",
				`no persistent volumes available for this claim, and nobody makes volumes of the class "` + in.Class.Name + `"`,
			},
			"no volume is good for the claim",
		)
	}
	by := in.Class.Provisioner
	d := settle(
		c, corev1.ClaimPending,
		Event{false, "ExternalProvisioning", "Waiting for a volume to be created either by the external provisioner '" + by +
			"' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is " +
			"running and correctly registered."},
		"somebody else makes the volume",
	)
	if c.Annotations[volume.Provisioner] != by {
		changed := c.DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, volume.Provisioner, by)
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, volume.OldProvisioner, by)
		d.Writes = append([]Write{{Claim: changed}}, d.Writes...)
	}
	return d
}

// settle has the claim say a phase in which it has no volume. Somebody who has read the event once need not read it at
// every look: the recorder counts.
func settle(c *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase, event Event,
	why string) Decision {
	d := Decision{Why: why}
	status := c.Status.DeepCopy()
	status.Phase, status.AccessModes, status.Capacity, status.CurrentVolumeAttributesClassName = phase, nil, nil, nil
	changed := !apiequality.Semantic.DeepEqual(*status, c.Status)
	if changed {
		next := c.DeepCopy()
		next.Status = *status
		d.Writes = append(d.Writes, Write{Claim: next, Status: true})
	}
	if event.Reason != "" && (phase == corev1.ClaimPending || changed) {
		d.Events = append(d.Events, event)
	}
	return d
}

// bind brings the two together, as far as they are not.
func bind(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim, why string) Decision {
	d := Decision{Why: why}
	v, c = v.DeepCopy(), c.DeepCopy()
	if ref := v.Spec.ClaimRef; ref == nil || ref.UID != c.UID {
		if !volume.IsFor(v, c) {
			metav1.SetMetaDataAnnotation(&v.ObjectMeta, volume.BoundByController, "yes")
		}
		v.Spec.ClaimRef = volume.Reference(c)
		d.Writes = append(d.Writes, Write{Volume: v.DeepCopy()})
	}
	d.Writes = append(d.Writes, phase(v, corev1.VolumeBound, "")...)
	_, done := c.Annotations[volume.BindCompleted]
	if c.Spec.VolumeName != v.Name || !done {
		if c.Spec.VolumeName != v.Name {
			c.Spec.VolumeName = v.Name
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.BoundByController, "yes")
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.BindCompleted, "yes")
		d.Writes = append(d.Writes, Write{Claim: c.DeepCopy()})
	}
	status := c.Status.DeepCopy()
	if status.Phase != corev1.ClaimBound {
		// Of a bound claim both are left to those who let volumes grow.
		status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *v.Spec.Capacity.Storage()}
		status.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
	}
	status.Phase, status.AccessModes = corev1.ClaimBound, v.Spec.AccessModes
	if !apiequality.Semantic.DeepEqual(*status, c.Status) {
		c.Status = *status
		d.Writes = append(d.Writes, Write{Claim: c, Status: true})
	}
	return d
}
