package defaults

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

const tokenLifetimeSeconds = 3600

func setVolumeDefaults(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.HostPath != nil {
		fillPointer(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		fillPointer(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		fillPointer(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		fillPointer(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		setFileDefaults(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		setProjectedDefaults(v.Projected)
	}
	if v.Image != nil {
		if v.Image.PullPolicy == "" {
			v.Image.PullPolicy = pullPolicy(v.Image.Reference)
		}
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		SetClaim(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
	setNetworkVolumeDefaults(v)
}

func setProjectedDefaults(p *corev1.ProjectedVolumeSource) {
	fillPointer(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if s := p.Sources[i].DownwardAPI; s != nil {
			setFileDefaults(s.Items)
		}
		if s := p.Sources[i].ServiceAccountToken; s != nil {
			fillPointer(&s.ExpirationSeconds, tokenLifetimeSeconds)
		}
	}
}

func setFileDefaults(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		setFieldDefaults(items[i].FieldRef)
	}
}

// setNetworkVolumeDefaults covers volumes that storage systems outside the node serve.
func setNetworkVolumeDefaults(v *corev1.Volume) {
	if s := v.ISCSI; s != nil {
		fill(&s.ISCSIInterface, "default")
	}
	if s := v.RBD; s != nil {
		fill(&s.RBDPool, "rbd")
		fill(&s.RadosUser, "admin")
		fill(&s.Keyring, "/etc/ceph/keyring")
	}
	if s := v.ScaleIO; s != nil {
		fill(&s.StorageMode, "ThinProvisioned")
		fill(&s.FSType, "xfs")
	}
	if s := v.AzureDisk; s != nil {
		if s.CachingMode == nil {
			s.CachingMode = ptr.To(corev1.AzureDataDiskCachingReadWrite)
		}
		if s.Kind == nil {
			s.Kind = ptr.To(corev1.AzureSharedBlobDisk)
		}
		fillPointer(&s.FSType, "ext4")
		fillPointer(&s.ReadOnly, false)
	}
}

// SetClaim fills in what a claim leaves out.
func SetClaim(s *corev1.PersistentVolumeClaimSpec) {
	fillPointer(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	RoundResources(s.Resources.Limits)
	RoundResources(s.Resources.Requests)
}
