package persistentvolume

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
	"github.com/everynode/everynode/internal/apiserver/registry/csi"
)

// source is one of the things that a volume can be. Those that no node here mounts are checked for what they cannot do
// without.
type source struct {
	name  string
	set   bool
	check func(at *field.Path) field.ErrorList
}

// needed refuses the absence of what is named.
func needed(at *field.Path, fields ...string) (errs field.ErrorList) {
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] == "" {
			errs = append(errs, field.Required(at.Child(fields[i]), ""))
		}
	}
	return errs
}

func sources(s *corev1.PersistentVolumeSpec) []source {
	return append([]source{
		{
			"hostPath", s.HostPath != nil,
			func(at *field.Path) field.ErrorList { return podspec.ValidateHostPath(s.HostPath, at) },
		},
		{"local", s.Local != nil, func(at *field.Path) field.ErrorList {
			if s.Local.Path == "" {
				return needed(at, "path", "")
			}
			return check.NoStepsUp(at.Child("path"), s.Local.Path)
		}},
		{"csi", s.CSI != nil, func(at *field.Path) field.ErrorList { return validateDriver(s.CSI, at) }},
	}, remote(s)...)
}

func remote(s *corev1.PersistentVolumeSpec) []source {
	return append(stores(s), clouds(s)...)
}

// stores are volumes of programs and devices on a network.
func stores(s *corev1.PersistentVolumeSpec) []source {
	return []source{
		{"nfs", s.NFS != nil, func(at *field.Path) field.ErrorList { return podspec.ValidateNFS(s.NFS, at) }},
		{"iscsi", s.ISCSI != nil, func(at *field.Path) field.ErrorList {
			return needed(at, "targetPortal", s.ISCSI.TargetPortal, "iqn", s.ISCSI.IQN)
		}},
		{"fc", s.FC != nil, func(at *field.Path) field.ErrorList {
			if len(s.FC.TargetWWNs) == 0 && len(s.FC.WWIDs) == 0 {
				return field.ErrorList{field.Required(
					at.Child("targetWWNs"), "must specify either targetWWNs or wwids, but not both",
				)}
			}
			return nil
		}},
		{"glusterfs", s.Glusterfs != nil, func(at *field.Path) field.ErrorList {
			return needed(at, "endpoints", s.Glusterfs.EndpointsName, "path", s.Glusterfs.Path)
		}},
		{"rbd", s.RBD != nil, func(at *field.Path) field.ErrorList { return needed(at, "image", s.RBD.RBDImage) }},
		{"cephfs", s.CephFS != nil, func(at *field.Path) field.ErrorList {
			if len(s.CephFS.Monitors) == 0 {
				return needed(at, "monitors", "")
			}
			return nil
		}},
		{"quobyte", s.Quobyte != nil, func(at *field.Path) field.ErrorList {
			return needed(at, "registry", s.Quobyte.Registry, "volume", s.Quobyte.Volume)
		}},
		{"flocker", s.Flocker != nil, func(at *field.Path) field.ErrorList {
			if s.Flocker.DatasetName == "" && s.Flocker.DatasetUUID == "" {
				return needed(at, "datasetUUID", "")
			}
			return nil
		}},
		{
			"flexVolume", s.FlexVolume != nil,
			func(at *field.Path) field.ErrorList { return needed(at, "driver", s.FlexVolume.Driver) },
		},
		{"scaleIO", s.ScaleIO != nil, func(at *field.Path) field.ErrorList {
			return needed(at, "gateway", s.ScaleIO.Gateway, "system", s.ScaleIO.System, "volumeName", s.ScaleIO.VolumeName)
		}},
		{
			"storageos", s.StorageOS != nil,
			func(at *field.Path) field.ErrorList { return needed(at, "volumeName", s.StorageOS.VolumeName) },
		},
		{
			"portworxVolume", s.PortworxVolume != nil,
			func(at *field.Path) field.ErrorList { return needed(at, "volumeID", s.PortworxVolume.VolumeID) },
		},
	}
}

// clouds are disks of those who rent out machines.
func clouds(s *corev1.PersistentVolumeSpec) []source {
	return []source{
		{
			"gcePersistentDisk", s.GCEPersistentDisk != nil,
			func(at *field.Path) field.ErrorList { return needed(at, "pdName", s.GCEPersistentDisk.PDName) },
		},
		{"awsElasticBlockStore", s.AWSElasticBlockStore != nil, func(at *field.Path) field.ErrorList {
			return needed(at, "volumeID", s.AWSElasticBlockStore.VolumeID)
		}},
		{
			"cinder", s.Cinder != nil,
			func(at *field.Path) field.ErrorList { return needed(at, "volumeID", s.Cinder.VolumeID) },
		},
		{"azureFile", s.AzureFile != nil, func(at *field.Path) field.ErrorList {
			return needed(at, "secretName", s.AzureFile.SecretName, "shareName", s.AzureFile.ShareName)
		}},
		{"azureDisk", s.AzureDisk != nil, func(at *field.Path) field.ErrorList {
			return needed(at, "diskName", s.AzureDisk.DiskName, "diskURI", s.AzureDisk.DataDiskURI)
		}},
		{
			"vsphereVolume", s.VsphereVolume != nil,
			func(at *field.Path) field.ErrorList { return needed(at, "volumePath", s.VsphereVolume.VolumePath) },
		},
		{
			"photonPersistentDisk", s.PhotonPersistentDisk != nil,
			func(at *field.Path) field.ErrorList { return needed(at, "pdID", s.PhotonPersistentDisk.PdID) },
		},
	}
}

func validateSource(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	for _, one := range sources(s) {
		switch {
		case !one.set:
		case found:
			errs = append(errs, field.Forbidden(at.Child(one.name), "may not specify more than 1 volume type"))
		default:
			found = true
			errs = append(errs, one.check(at.Child(one.name))...)
		}
	}
	if !found {
		errs = append(errs, field.Required(at, "must specify a volume type"))
	}
	return errs
}

func validateDriver(s *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := csi.ValidateName(s.Driver, at.Child("driver"))
	errs = append(errs, needed(at, "volumeHandle", s.VolumeHandle)...)
	for _, secret := range []struct {
		name string
		ref  *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", s.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", s.ControllerExpandSecretRef},
		{"nodePublishSecretRef", s.NodePublishSecretRef}, {"nodeExpandSecretRef", s.NodeExpandSecretRef},
	} {
		if secret.ref != nil {
			errs = append(errs, needed(at.Child(secret.name), "name", secret.ref.Name, "namespace", secret.ref.Namespace)...)
		}
	}
	return errs
}

// setSourceDefaults fills in what the volume's own kind has defaults for.
func setSourceDefaults(s *corev1.PersistentVolumeSource) {
	if s.HostPath != nil && s.HostPath.Type == nil {
		s.HostPath.Type = ptr.To(corev1.HostPathUnset)
	}
	fill := func(to *string, value string) {
		if *to == "" {
			*to = value
		}
	}
	if s.ISCSI != nil {
		fill(&s.ISCSI.ISCSIInterface, "default")
	}
	if s.RBD != nil {
		fill(&s.RBD.RBDPool, "rbd")
		fill(&s.RBD.RadosUser, "admin")
		fill(&s.RBD.Keyring, "/etc/ceph/keyring")
	}
	if s.ScaleIO != nil {
		fill(&s.ScaleIO.StorageMode, "ThinProvisioned")
		fill(&s.ScaleIO.FSType, "xfs")
	}
	if d := s.AzureDisk; d != nil {
		if d.CachingMode == nil {
			d.CachingMode = ptr.To(corev1.AzureDataDiskCachingReadWrite)
		}
		if d.Kind == nil {
			d.Kind = ptr.To(corev1.AzureSharedBlobDisk)
		}
		if d.FSType == nil {
			d.FSType = ptr.To("ext4")
		}
		if d.ReadOnly == nil {
			d.ReadOnly = ptr.To(false)
		}
	}
}
