// Package volume has facts about PersistentVolumes and the claims to them: what class they are of, which volume is for
// which claim, and which is good for one. It is pure.
package volume

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/objects/class"
)

// Annotations with Kubernetes' names, by which those that bind and make volumes tell each other how far they are.
const (
	// BoundByController marks what a control loop bound, and not a user.
	BoundByController = "pv.kubernetes.io/bound-by-controller"
	// BindCompleted marks a claim that was bound once.
	BindCompleted = "pv.kubernetes.io/bind-completed"
	// ProvisionedBy names who made a volume.
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// SelectedNode is the node for which somebody should make the claim's volume.
	SelectedNode = "volume.kubernetes.io/selected-node"
	// Provisioner, and OldProvisioner for programs of old, name who should make the claim's volume.
	Provisioner    = "volume.kubernetes.io/storage-provisioner"
	OldProvisioner = "volume.beta.kubernetes.io/storage-provisioner"

	defaultClass    = "storageclass.kubernetes.io/is-default-class"
	oldDefaultClass = "storageclass.beta.kubernetes.io/is-default-class"
)

// NoProvisioner is the provisioner of classes for which nobody makes volumes.
const NoProvisioner = "kubernetes.io/no-provisioner"

// Finalizers that keep a volume while it is bound, and a claim while a pod uses it.
const (
	Protection      = "kubernetes.io/pv-protection"
	ClaimProtection = "kubernetes.io/pvc-protection"
)

// Class is the name of a volume's class, "" for none.
func Class(v *corev1.PersistentVolume) string {
	if name, old := v.Annotations[corev1.BetaStorageClassAnnotation]; old {
		return name
	}
	return v.Spec.StorageClassName
}

// ClaimClass is the name of a claim's class, "" for none.
func ClaimClass(c *corev1.PersistentVolumeClaim) string {
	if name, old := c.Annotations[corev1.BetaStorageClassAnnotation]; old {
		return name
	}
	return ptr.Deref(c.Spec.StorageClassName, "")
}

// HasClass says whether a claim names a class, also if that is "no class".
func HasClass(c *corev1.PersistentVolumeClaim) bool {
	_, old := c.Annotations[corev1.BetaStorageClassAnnotation]
	return old || c.Spec.StorageClassName != nil
}

// IsDefaultClass says whether the class is marked as that of claims which name none.
func IsDefaultClass(c *storagev1.StorageClass) bool {
	return c.Annotations[defaultClass] == "true" || c.Annotations[oldDefaultClass] == "true"
}

// DefaultClass is the class of claims that name none: the newest marked one, and of those made at once the first by
// name; nil if there is none.
func DefaultClass(all []*storagev1.StorageClass) *storagev1.StorageClass {
	return class.Default(all, IsDefaultClass)
}

// Waits says whether claims of the class get a volume only when a pod that uses them gets its node.
func Waits(c *storagev1.StorageClass) bool {
	return c != nil && c.VolumeBindingMode != nil && *c.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// IsFor says whether a volume is kept for this very claim: it names the claim, and its UID if it names one.
func IsFor(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == c.Name && ref.Namespace == c.Namespace && (ref.UID == "" || ref.UID == c.UID)
}

// Reference is how a volume names a claim.
func Reference(c *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
		ResourceVersion: c.ResourceVersion,
	}
}

// Mode is what pods see of a volume or claim: a file system, or a device.
func Mode(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
	return ptr.Deref(m, corev1.PersistentVolumeFilesystem)
}

// Bound says whether a claim has its volume for good.
func Bound(c *corev1.PersistentVolumeClaim) bool {
	_, done := c.Annotations[BindCompleted]
	return c.Spec.VolumeName != "" && done
}

// AccessModes shows access modes as kubectl does, such as RWO,ROX.
func AccessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"},
		{corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"},
		{corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, m.mode) {
			out = append(out, m.short)
		}
	}
	return strings.Join(out, ",")
}

// ClaimName is the name of the claim that a pod's volume is from, "" for other volumes. An ephemeral volume has a claim
// of the pod's own.
func ClaimName(pod string, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod + "-" + v.Name
	}
	return ""
}
