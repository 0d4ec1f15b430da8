package plan

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/objects/volume"
)

// Volume decides about a volume, given the claim that it names; nil if there is none with that name and UID.
func Volume(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) Decision {
	ref := v.Spec.ClaimRef
	switch {
	case ref == nil:
		return enter(v, corev1.VolumeAvailable, "nobody has the volume")
	case ref.UID == "":
		return enter(v, corev1.VolumeAvailable, "the volume is kept for a claim")
	case c == nil:
		return released(v, "the claim is gone")
	case c.Spec.VolumeName == v.Name:
		return enter(v, corev1.VolumeBound, "the volume is bound")
	case c.Spec.VolumeName == "" && volume.Mode(v.Spec.VolumeMode) != volume.Mode(c.Spec.VolumeMode):
		return Decision{Why: "the modes differ", Events: []Event{{true, "VolumeMismatch",
			`Cannot bind PersistentVolume to requested PersistentVolumeClaim "` + c.Name + `" due to incompatible volumeMode.`}}}
	case c.Spec.VolumeName == "":
		return Decision{Why: "the claim does not name the volume yet"}
	case v.Annotations[volume.ProvisionedBy] != "" &&
		v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return released(v, "the volume was made for a claim that has another one")
	}
	return unbind(v)
}

// Gone says whether the decision without a claim takes something from the volume, so that it is worth asking the API
// whether the claim is really gone.
func Gone(v *corev1.PersistentVolume) bool {
	return v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID != "" && v.Status.Phase != corev1.VolumeReleased &&
		v.Status.Phase != corev1.VolumeFailed
}

func enter(v *corev1.PersistentVolume, to corev1.PersistentVolumePhase, why string) Decision {
	return Decision{Writes: phase(v, to, ""), Why: why}
}

// phase is the write of a phase, none if the volume is in it.
func phase(v *corev1.PersistentVolume, to corev1.PersistentVolumePhase, message string) []Write {
	if v.Status.Phase == to && (message == "" || v.Status.Message == message) {
		return nil
	}
	next := v.DeepCopy()
	next.Status.Phase, next.Status.Message, next.Status.LastPhaseTransitionTime = to, message, nil
	if v.Status.Phase == to {
		next.Status.LastPhaseTransitionTime = v.Status.LastPhaseTransitionTime
	}
	return []Write{{Volume: next, Status: true}}
}

// unbind gives back a volume whose claim has another one. Who kept it for the claim by hand keeps it.
func unbind(v *corev1.PersistentVolume) Decision {
	next := v.DeepCopy()
	if _, ours := v.Annotations[volume.BoundByController]; ours {
		next.Spec.ClaimRef = nil
		delete(next.Annotations, volume.BoundByController)
	} else {
		next.Spec.ClaimRef.UID = ""
	}
	d := Decision{Writes: []Write{{Volume: next}}, Why: "the claim has another volume"}
	d.Writes = append(d.Writes, phase(next, corev1.VolumeAvailable, "")...)
	return d
}

// released does what the volume's policy says. Volumes that somebody made are deleted by whoever made them; others are
// not deleted: their content is on a node, or somewhere that is not known here.
func released(v *corev1.PersistentVolume, why string) Decision {
	var failed Event
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimRetain:
	case corev1.PersistentVolumeReclaimDelete:
		if v.Annotations[volume.ProvisionedBy] == "" {
			failed = Event{
				true, "VolumeFailedDelete",
				"nobody made this volume for a claim, so nothing here deletes it: remove its content by hand, then the " +
					"PersistentVolume",
			}
		}
	case corev1.PersistentVolumeReclaimRecycle:
		failed = Event{
			true, "VolumeFailedRecycle",
			"nothing here recycles volumes: remove its content by hand, then spec.claimRef of the PersistentVolume",
		}
	default:
		failed = Event{true, "VolumeUnknownReclaimPolicy", "Volume has unrecognized PersistentVolumeReclaimPolicy"}
	}
	if failed.Reason != "" {
		d := Decision{Writes: phase(v, corev1.VolumeFailed, failed.Message), Why: why}
		if len(d.Writes) > 0 {
			d.Events = []Event{failed}
		}
		return d
	}
	if v.Status.Phase == corev1.VolumeFailed {
		return Decision{Why: "whoever made the volume could not delete it"}
	}
	return enter(v, corev1.VolumeReleased, why)
}
