package warnings

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func volumeWarnings(volumes []corev1.Volume, path *field.Path) []string {
	var w []string
	for i, v := range volumes {
		at := path.Index(i)
		for _, o := range obsolete(&v.VolumeSource) {
			if o.set {
				w = append(w, fmt.Sprintf("%s: %s", at.Child(o.name), o.why))
			}
		}
		w = append(w, notMounted(&v.VolumeSource, at)...)
	}
	for i := range volumes {
		w = append(w, overlaps(&volumes[i])...)
	}
	return w
}

// obsolete lists the volume sources that are on their way out.
func obsolete(v *corev1.VolumeSource) []struct {
	name, why string
	set       bool
} {
	const since122, since128 = "deprecated in v1.22, non-functional in v1.25+", "deprecated in v1.28, non-functional in " +
		"v1.31+"
	return []struct {
		name, why string
		set       bool
	}{
		{"photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+", v.PhotonPersistentDisk != nil},
		{"gitRepo", "deprecated in v1.11", v.GitRepo != nil},
		{"scaleIO", "deprecated in v1.16, non-functional in v1.22+", v.ScaleIO != nil},
		{"flocker", since122, v.Flocker != nil},
		{"storageOS", since122, v.StorageOS != nil},
		{"quobyte", since122, v.Quobyte != nil},
		{"glusterfs", "deprecated in v1.25, non-functional in v1.26+", v.Glusterfs != nil},
		{"cephfs", since128, v.CephFS != nil},
		{"rbd", since128, v.RBD != nil},
	}
}

// foreign lists the volume sources that no node mounts.
func foreign(v *corev1.VolumeSource) []struct {
	name string
	set  bool
} {
	return []struct {
		name string
		set  bool
	}{
		{"awsElasticBlockStore", v.AWSElasticBlockStore != nil}, {"azureDisk", v.AzureDisk != nil}, {"azureFile",
			v.AzureFile != nil},
		{"cephfs", v.CephFS != nil}, {"cinder", v.Cinder != nil}, {"fc", v.FC != nil}, {"flexVolume",
			v.FlexVolume != nil}, {"flocker", v.Flocker != nil},
		{"gcePersistentDisk", v.GCEPersistentDisk != nil}, {"gitRepo", v.GitRepo != nil}, {"glusterfs",
			v.Glusterfs != nil}, {"iscsi", v.ISCSI != nil},
		{"nfs", v.NFS != nil}, {"photonPersistentDisk", v.PhotonPersistentDisk != nil}, {"portworxVolume",
			v.PortworxVolume != nil}, {"quobyte", v.Quobyte != nil},
		{"rbd", v.RBD != nil}, {"scaleIO", v.ScaleIO != nil}, {"storageos", v.StorageOS != nil}, {"vsphereVolume",
			v.VsphereVolume != nil},
	}
}

// notMounted says that pods will wait for a volume in vain.
func notMounted(v *corev1.VolumeSource, path *field.Path) (w []string) {
	for _, f := range foreign(v) {
		if f.set {
			w = append(w, fmt.Sprintf(
				"%s: nodes mount no volumes of this kind, and a pod with one waits; use a storage driver (csi), or mount it on "+
					"the machines and use hostPath",
				path.Child(f.name),
			))
		}
	}
	if v.Projected == nil {
		return w
	}
	for i, s := range v.Projected.Sources {
		at := path.Child("projected", "sources").Index(i)
		if s.ClusterTrustBundle != nil {
			w = append(w, fmt.Sprintf("%s: nodes know no trust bundles, and a pod with one waits; use a configMap",
				at.Child("clusterTrustBundle")))
		}
		if s.PodCertificate != nil {
			w = append(w, fmt.Sprintf("%s: nodes get no certificates for pods, and a pod that asks for one waits; use a secret",
				at.Child("podCertificate")))
		}
	}
	return w
}

// OfClaim are about amounts of storage that are no whole bytes.
func OfClaim(s *corev1.PersistentVolumeClaimSpec, path *field.Path) (warnings []string) {
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", s.Resources.Requests}, {"limits", s.Resources.Limits}} {
		if amount := part.list.Storage(); amount.MilliValue()%1000 != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer",
				path.Child("resources", part.name).Key(string(corev1.ResourceStorage)), amount))
		}
	}
	if ptr.Deref(s.VolumeMode, "") == corev1.PersistentVolumeBlock {
		warnings = append(warnings, fmt.Sprintf(
			"%s: nodes give pods no block devices, and a pod with this claim waits; use Filesystem", path.Child("volumeMode"),
		))
	}
	return warnings
}
