package staticpods

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const needsAPI = "static pods may not refer to objects of the API: they must run without it"

// references lists what a pod uses that only the API has.
func references(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(path *field.Path) { errs = append(errs, field.Forbidden(path, needsAPI)) }
	if spec.ServiceAccountName != "" {
		forbid(path.Child("serviceAccountName"))
	}
	if len(spec.ImagePullSecrets) > 0 {
		forbid(path.Child("imagePullSecrets"))
	}
	if len(spec.ResourceClaims) > 0 {
		forbid(path.Child("resourceClaims"))
	}
	for i := range spec.Volumes {
		volumeReferences(&spec.Volumes[i], path.Child("volumes").Index(i), forbid)
	}
	for name, list := range map[string][]corev1.Container{"initContainers": spec.InitContainers,
		"containers": spec.Containers} {
		for i := range list {
			environmentReferences(&list[i], path.Child(name).Index(i), forbid)
		}
	}
	return errs
}

func volumeReferences(v *corev1.Volume, path *field.Path, forbid func(*field.Path)) {
	switch {
	case v.Secret != nil:
		forbid(path.Child("secret"))
	case v.ConfigMap != nil:
		forbid(path.Child("configMap"))
	case v.PersistentVolumeClaim != nil:
		forbid(path.Child("persistentVolumeClaim"))
	case v.Ephemeral != nil:
		forbid(path.Child("ephemeral"))
	case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
		forbid(path.Child("csi", "nodePublishSecretRef"))
	case v.Projected != nil:
		for i, source := range v.Projected.Sources {
			if source.DownwardAPI == nil {
				forbid(path.Child("projected", "sources").Index(i))
			}
		}
	}
}

func environmentReferences(c *corev1.Container, path *field.Path, forbid func(*field.Path)) {
	for i, from := range c.EnvFrom {
		if from.SecretRef != nil || from.ConfigMapRef != nil {
			forbid(path.Child("envFrom").Index(i))
		}
	}
	for i, v := range c.Env {
		if v.ValueFrom != nil && (v.ValueFrom.SecretKeyRef != nil || v.ValueFrom.ConfigMapKeyRef != nil) {
			forbid(path.Child("env").Index(i).Child("valueFrom"))
		}
	}
}
