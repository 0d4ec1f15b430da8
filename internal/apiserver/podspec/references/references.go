// Package references knows which objects a pod refers to by name. It is pure.
package references

import (
	corev1 "k8s.io/api/core/v1"
)

// Resources of the objects that pods refer to by name.
const (
	Secrets         = "secrets"
	ConfigMaps      = "configmaps"
	ServiceAccounts = "serviceaccounts"
)

// Of calls f with the resource and the name of every secret, config map and
// service account that a pod uses, some of them several times.
func Of(spec *corev1.PodSpec, f func(resource, name string)) {
	if spec.ServiceAccountName != "" {
		f(ServiceAccounts, spec.ServiceAccountName)
	}
	for _, secret := range spec.ImagePullSecrets {
		f(Secrets, secret.Name)
	}
	for i := range spec.Volumes {
		volumeReferences(&spec.Volumes[i].VolumeSource, f)
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			environmentReferences(containers[i].Env, containers[i].EnvFrom, f)
		}
	}
	for i := range spec.EphemeralContainers {
		environmentReferences(spec.EphemeralContainers[i].Env, spec.EphemeralContainers[i].EnvFrom, f)
	}
}

func volumeReferences(volume *corev1.VolumeSource, f func(resource, name string)) {
	if s := volume.Secret; s != nil {
		f(Secrets, s.SecretName)
	}
	if c := volume.ConfigMap; c != nil {
		f(ConfigMaps, c.Name)
	}
	if p := volume.Projected; p != nil {
		for _, source := range p.Sources {
			if source.Secret != nil {
				f(Secrets, source.Secret.Name)
			}
			if source.ConfigMap != nil {
				f(ConfigMaps, source.ConfigMap.Name)
			}
		}
	}
	for _, ref := range driverSecrets(volume) {
		if ref != nil {
			f(Secrets, ref.Name)
		}
	}
}

// driverSecrets are what storage systems are to be told, also of kinds that no node
// mounts here. Elements are nil where there is no secret.
func driverSecrets(v *corev1.VolumeSource) (refs []*corev1.LocalObjectReference) {
	switch {
	case v.CSI != nil:
		refs = append(refs, v.CSI.NodePublishSecretRef)
	case v.FlexVolume != nil:
		refs = append(refs, v.FlexVolume.SecretRef)
	case v.AzureFile != nil:
		refs = append(refs, &corev1.LocalObjectReference{Name: v.AzureFile.SecretName})
	case v.CephFS != nil:
		refs = append(refs, v.CephFS.SecretRef)
	case v.Cinder != nil:
		refs = append(refs, v.Cinder.SecretRef)
	case v.ISCSI != nil:
		refs = append(refs, v.ISCSI.SecretRef)
	case v.RBD != nil:
		refs = append(refs, v.RBD.SecretRef)
	case v.ScaleIO != nil:
		refs = append(refs, v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		refs = append(refs, v.StorageOS.SecretRef)
	}
	return refs
}

func environmentReferences(env []corev1.EnvVar, from []corev1.EnvFromSource, f func(resource, name string)) {
	for _, source := range from {
		if source.SecretRef != nil {
			f(Secrets, source.SecretRef.Name)
		}
		if source.ConfigMapRef != nil {
			f(ConfigMaps, source.ConfigMapRef.Name)
		}
	}
	for _, variable := range env {
		if variable.ValueFrom == nil {
			continue
		}
		if ref := variable.ValueFrom.SecretKeyRef; ref != nil {
			f(Secrets, ref.Name)
		}
		if ref := variable.ValueFrom.ConfigMapKeyRef; ref != nil {
			f(ConfigMaps, ref.Name)
		}
	}
}
