package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

// validateVolumes returns the usable volumes by name and what is wrong with the others.
func validateVolumes(volumes []corev1.Volume, path *field.Path) (map[string]corev1.VolumeSource, field.ErrorList) {
	var all field.ErrorList
	usable := map[string]corev1.VolumeSource{}
	for i := range enough.Each(volumes, &all) {
		v, at := &volumes[i], path.Index(i)
		errs := validateSource(v, at)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, check.DNSLabel(at.Child("name"), v.Name)...)
		}
		if _, taken := usable[v.Name]; taken {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		if len(errs) == 0 {
			usable[v.Name] = v.VolumeSource
		}
		all = append(all, errs...)
	}
	return usable, all
}

// sourceCheck is one of the things a volume can be made of.
type sourceCheck struct {
	name  string
	set   func(v *corev1.Volume) bool
	check func(v *corev1.Volume, path *field.Path) field.ErrorList
}

// allSources are made once: a pod may have very many volumes.
var allSources = append(localSources(), networkSources()...)

func validateSource(v *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	for _, s := range allSources {
		switch {
		case !s.set(v):
		case found:
			errs = append(errs, field.Forbidden(path.Child(s.name), "may not specify more than 1 volume type"))
		default:
			found = true
			errs = append(errs, s.check(v, path.Child(s.name))...)
		}
	}
	if !found {
		errs = append(errs, field.Required(path, "must specify a volume type"))
	}
	return errs
}

// localSources are the volumes that a node makes by itself.
func localSources() []sourceCheck {
	return []sourceCheck{
		{"emptyDir", func(v *corev1.Volume) bool { return v.EmptyDir != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				if limit := v.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
					return field.ErrorList{field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")}
				}
				return nil
			}},
		{"hostPath", func(v *corev1.Volume) bool { return v.HostPath != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList { return ValidateHostPath(v.HostPath, at) }},
		{"gitRepo", func(v *corev1.Volume) bool { return v.GitRepo != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return append(check.Required(at.Child("repository"), v.GitRepo.Repository),
					check.BelowRoot(at.Child("directory"), v.GitRepo.Directory)...)
			}},
		{"secret", func(v *corev1.Volume) bool { return v.Secret != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				s := v.Secret
				errs := check.Required(at.Child("secretName"), s.SecretName)
				errs = append(errs, fileMode(at.Child("defaultMode"), s.DefaultMode)...)
				return append(errs, validateItems(s.Items, at.Child("items"))...)
			}},
		{"downwardAPI", func(v *corev1.Volume) bool { return v.DownwardAPI != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				errs := fileMode(at.Child("defaultMode"), v.DownwardAPI.DefaultMode)
				for i := range enough.Each(v.DownwardAPI.Items, &errs) {
					errs = append(errs, validateFieldFile(&v.DownwardAPI.Items[i], at)...)
				}
				return errs
			}},
		{"configMap", func(v *corev1.Volume) bool { return v.ConfigMap != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				s := v.ConfigMap
				errs := check.Required(at.Child("name"), s.Name)
				errs = append(errs, fileMode(at.Child("defaultMode"), s.DefaultMode)...)
				return append(errs, validateItems(s.Items, at.Child("items"))...)
			}},
		{"projected", func(v *corev1.Volume) bool { return v.Projected != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList { return validateProjected(v.Projected, at) }},
		{"image", func(v *corev1.Volume) bool { return v.Image != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				errs := check.Required(at.Child("reference"), v.Image.Reference)
				if strings.TrimSpace(v.Image.Reference) != v.Image.Reference {
					errs = append(errs, field.Invalid(at.Child("reference"), v.Image.Reference,
						"must not have leading or trailing whitespace"))
				}
				return append(errs, check.Chosen(at.Child("pullPolicy"), v.Image.PullPolicy,
					corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
			}},
	}
}

// ValidateHostPath checks a file or folder of a node.
func ValidateHostPath(s *corev1.HostPathVolumeSource, path *field.Path) field.ErrorList {
	if s.Path == "" {
		return field.ErrorList{field.Required(path.Child("path"), "")}
	}
	errs := check.NoStepsUp(path.Child("path"), s.Path)
	if s.Type != nil {
		errs = append(errs, check.Supported(path.Child("type"), *s.Type,
			corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
			corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)...)
	}
	return errs
}

// networkSources are the volumes that something outside the node provides. They
// are checked for what no such volume can do without.
func networkSources() []sourceCheck {
	out := []sourceCheck{
		{"gcePersistentDisk", func(v *corev1.Volume) bool { return v.GCEPersistentDisk != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return check.Required(at.Child("pdName"), v.GCEPersistentDisk.PDName)
			}},
		{"awsElasticBlockStore", func(v *corev1.Volume) bool { return v.AWSElasticBlockStore != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return check.Required(at.Child("volumeID"), v.AWSElasticBlockStore.VolumeID)
			}},
		{"nfs", func(v *corev1.Volume) bool { return v.NFS != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList { return ValidateNFS(v.NFS, at) }},
		{"iscsi", func(v *corev1.Volume) bool { return v.ISCSI != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return append(check.Required(at.Child("targetPortal"), v.ISCSI.TargetPortal),
					check.Required(at.Child("iqn"), v.ISCSI.IQN)...)
			}},
		{"glusterfs", func(v *corev1.Volume) bool { return v.Glusterfs != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return append(check.Required(at.Child("endpoints"), v.Glusterfs.EndpointsName),
					check.Required(at.Child("path"), v.Glusterfs.Path)...)
			}},
		{"persistentVolumeClaim", func(v *corev1.Volume) bool { return v.PersistentVolumeClaim != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return check.Required(at.Child("claimName"), v.PersistentVolumeClaim.ClaimName)
			}},
		{"rbd", func(v *corev1.Volume) bool { return v.RBD != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return check.Required(at.Child("image"),
					v.RBD.RBDImage)
			}},
		{"cinder", func(v *corev1.Volume) bool { return v.Cinder != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return check.Required(at.Child("volumeID"),
					v.Cinder.VolumeID)
			}},
		{"azureFile", func(v *corev1.Volume) bool { return v.AzureFile != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return append(check.Required(at.Child("secretName"), v.AzureFile.SecretName),
					check.Required(at.Child("shareName"), v.AzureFile.ShareName)...)
			}},
		{"vsphereVolume", func(v *corev1.Volume) bool { return v.VsphereVolume != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return check.Required(at.Child("volumePath"), v.VsphereVolume.VolumePath)
			}},
		{"portworxVolume", func(v *corev1.Volume) bool { return v.PortworxVolume != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return check.Required(at.Child("volumeID"), v.PortworxVolume.VolumeID)
			}},
		{"csi", func(v *corev1.Volume) bool { return v.CSI != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				return check.Required(at.Child("driver"),
					v.CSI.Driver)
			}},
		{"ephemeral", func(v *corev1.Volume) bool { return v.Ephemeral != nil },
			func(v *corev1.Volume, at *field.Path) field.ErrorList {
				if v.Ephemeral.VolumeClaimTemplate == nil {
					return field.ErrorList{field.Required(at.Child("volumeClaimTemplate"), "")}
				}
				return ValidateClaimTemplate(v.Ephemeral.VolumeClaimTemplate, at.Child("volumeClaimTemplate"))
			}},
	}
	anything := func(*corev1.Volume, *field.Path) field.ErrorList { return nil }
	return append(out,
		sourceCheck{"flocker", func(v *corev1.Volume) bool { return v.Flocker != nil }, anything},
		sourceCheck{"cephfs", func(v *corev1.Volume) bool { return v.CephFS != nil }, anything},
		sourceCheck{"flexVolume", func(v *corev1.Volume) bool { return v.FlexVolume != nil }, anything},
		sourceCheck{"fc", func(v *corev1.Volume) bool { return v.FC != nil }, anything},
		sourceCheck{"quobyte", func(v *corev1.Volume) bool { return v.Quobyte != nil }, anything},
		sourceCheck{"azureDisk", func(v *corev1.Volume) bool { return v.AzureDisk != nil }, anything},
		sourceCheck{"photonPersistentDisk", func(v *corev1.Volume) bool { return v.PhotonPersistentDisk != nil }, anything},
		sourceCheck{"scaleIO", func(v *corev1.Volume) bool { return v.ScaleIO != nil }, anything},
		sourceCheck{"storageos", func(v *corev1.Volume) bool { return v.StorageOS != nil }, anything},
	)
}

// ValidateNFS checks a folder of another machine.
func ValidateNFS(s *corev1.NFSVolumeSource, path *field.Path) field.ErrorList {
	errs := append(check.Required(path.Child("server"), s.Server), check.Required(path.Child("path"), s.Path)...)
	if !strings.HasPrefix(s.Path, "/") {
		errs = append(errs, field.Invalid(path.Child("path"), s.Path, "must be an absolute path"))
	}
	return errs
}
