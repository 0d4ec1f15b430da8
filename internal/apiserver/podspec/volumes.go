package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateVolumes returns the usable volumes by name and what is wrong with the others.
func validateVolumes(volumes []corev1.Volume, path *field.Path) (map[string]corev1.VolumeSource, field.ErrorList) {
	var all field.ErrorList
	usable := map[string]corev1.VolumeSource{}
	for i := range volumes {
		v, at := &volumes[i], path.Index(i)
		errs := validateSource(v, at)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, dnsLabel(at.Child("name"), v.Name)...)
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
	set   bool
	check func(path *field.Path) field.ErrorList
}

func validateSource(v *corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	for _, s := range append(localSources(v), networkSources(v)...) {
		switch {
		case !s.set:
		case found:
			errs = append(errs, field.Forbidden(path.Child(s.name), "may not specify more than 1 volume type"))
		default:
			found = true
			errs = append(errs, s.check(path.Child(s.name))...)
		}
	}
	if !found {
		errs = append(errs, field.Required(path, "must specify a volume type"))
	}
	return errs
}

// localSources are the volumes that a node makes by itself.
func localSources(v *corev1.Volume) []sourceCheck {
	return []sourceCheck{
		{"emptyDir", v.EmptyDir != nil, func(at *field.Path) field.ErrorList {
			if limit := v.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
				return field.ErrorList{field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")}
			}
			return nil
		}},
		{"hostPath", v.HostPath != nil, func(at *field.Path) field.ErrorList { return validateHostPath(v.HostPath, at) }},
		{"gitRepo", v.GitRepo != nil, func(at *field.Path) field.ErrorList {
			return append(required(at.Child("repository"), v.GitRepo.Repository), belowRoot(at.Child("directory"), v.GitRepo.Directory)...)
		}},
		{"secret", v.Secret != nil, func(at *field.Path) field.ErrorList {
			s := v.Secret
			errs := required(at.Child("secretName"), s.SecretName)
			errs = append(errs, fileMode(at.Child("defaultMode"), s.DefaultMode)...)
			return append(errs, validateItems(s.Items, at.Child("items"))...)
		}},
		{"downwardAPI", v.DownwardAPI != nil, func(at *field.Path) field.ErrorList {
			errs := fileMode(at.Child("defaultMode"), v.DownwardAPI.DefaultMode)
			for i := range v.DownwardAPI.Items {
				errs = append(errs, validateFieldFile(&v.DownwardAPI.Items[i], at)...)
			}
			return errs
		}},
		{"configMap", v.ConfigMap != nil, func(at *field.Path) field.ErrorList {
			s := v.ConfigMap
			errs := required(at.Child("name"), s.Name)
			errs = append(errs, fileMode(at.Child("defaultMode"), s.DefaultMode)...)
			return append(errs, validateItems(s.Items, at.Child("items"))...)
		}},
		{"projected", v.Projected != nil, func(at *field.Path) field.ErrorList { return validateProjected(v.Projected, at) }},
		{"image", v.Image != nil, func(at *field.Path) field.ErrorList {
			errs := required(at.Child("reference"), v.Image.Reference)
			if strings.TrimSpace(v.Image.Reference) != v.Image.Reference {
				errs = append(errs, field.Invalid(at.Child("reference"), v.Image.Reference, "must not have leading or trailing whitespace"))
			}
			return append(errs, chosen(at.Child("pullPolicy"), v.Image.PullPolicy,
				corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
		}},
	}
}

func validateHostPath(s *corev1.HostPathVolumeSource, path *field.Path) field.ErrorList {
	if s.Path == "" {
		return field.ErrorList{field.Required(path.Child("path"), "")}
	}
	errs := noStepsUp(path.Child("path"), s.Path)
	if s.Type != nil {
		errs = append(errs, supported(path.Child("type"), *s.Type,
			corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev, corev1.HostPathDirectory,
			corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)...)
	}
	return errs
}

// networkSources are the volumes that something outside the node provides.
func networkSources(v *corev1.Volume) []sourceCheck {
	needs := func(fields ...string) func(*field.Path) field.ErrorList {
		return func(at *field.Path) (errs field.ErrorList) {
			for i := 0; i+1 < len(fields); i += 2 {
				errs = append(errs, required(at.Child(fields[i]), fields[i+1])...)
			}
			return errs
		}
	}
	var out []sourceCheck
	add := func(name string, check func(*field.Path) field.ErrorList) {
		out = append(out, sourceCheck{name, true, check})
	}
	if s := v.GCEPersistentDisk; s != nil {
		add("gcePersistentDisk", needs("pdName", s.PDName))
	}
	if s := v.AWSElasticBlockStore; s != nil {
		add("awsElasticBlockStore", needs("volumeID", s.VolumeID))
	}
	if s := v.NFS; s != nil {
		add("nfs", func(at *field.Path) field.ErrorList {
			errs := needs("server", s.Server, "path", s.Path)(at)
			if !strings.HasPrefix(s.Path, "/") {
				errs = append(errs, field.Invalid(at.Child("path"), s.Path, "must be an absolute path"))
			}
			return errs
		})
	}
	if s := v.ISCSI; s != nil {
		add("iscsi", needs("targetPortal", s.TargetPortal, "iqn", s.IQN))
	}
	if s := v.Glusterfs; s != nil {
		add("glusterfs", needs("endpoints", s.EndpointsName, "path", s.Path))
	}
	if s := v.PersistentVolumeClaim; s != nil {
		add("persistentVolumeClaim", needs("claimName", s.ClaimName))
	}
	if s := v.RBD; s != nil {
		add("rbd", needs("image", s.RBDImage))
	}
	if s := v.Cinder; s != nil {
		add("cinder", needs("volumeID", s.VolumeID))
	}
	if s := v.AzureFile; s != nil {
		add("azureFile", needs("secretName", s.SecretName, "shareName", s.ShareName))
	}
	if s := v.VsphereVolume; s != nil {
		add("vsphereVolume", needs("volumePath", s.VolumePath))
	}
	if s := v.PortworxVolume; s != nil {
		add("portworxVolume", needs("volumeID", s.VolumeID))
	}
	if s := v.CSI; s != nil {
		add("csi", needs("driver", s.Driver))
	}
	if s := v.Ephemeral; s != nil {
		add("ephemeral", func(at *field.Path) field.ErrorList {
			if s.VolumeClaimTemplate == nil {
				return field.ErrorList{field.Required(at.Child("volumeClaimTemplate"), "")}
			}
			return nil
		})
	}
	for name, set := range map[string]bool{
		"flocker": v.Flocker != nil, "cephfs": v.CephFS != nil, "flexVolume": v.FlexVolume != nil, "fc": v.FC != nil,
		"quobyte": v.Quobyte != nil, "azureDisk": v.AzureDisk != nil, "photonPersistentDisk": v.PhotonPersistentDisk != nil,
		"scaleIO": v.ScaleIO != nil, "storageos": v.StorageOS != nil,
	} {
		if set {
			add(name, needs())
		}
	}
	return out
}
