package nodeauth

import corev1 "k8s.io/api/core/v1"

// reference names an object that a pod uses.
type reference struct {
	resource, namespace, name string
}

const (
	secrets         = "secrets"
	configMaps      = "configmaps"
	serviceAccounts = "serviceaccounts"
)

// references is the set of objects that pods use.
type references map[reference]struct{}

func (r references) has(ref reference) bool {
	_, ok := r[ref]
	return ok
}

func referencesOf(pods []corev1.Pod) references {
	all := references{}
	for i := range pods {
		// A mirror pod is written by the node itself: it must not open anything.
		if _, mirror := pods[i].Annotations[corev1.MirrorPodAnnotationKey]; !mirror {
			all.addPod(&pods[i])
		}
	}
	return all
}

func (r references) addPod(pod *corev1.Pod) {
	add := func(resource, name string) {
		if name != "" {
			r[reference{resource, pod.Namespace, name}] = struct{}{}
		}
	}
	add(serviceAccounts, pod.Spec.ServiceAccountName)
	for _, secret := range pod.Spec.ImagePullSecrets {
		add(secrets, secret.Name)
	}
	for i := range pod.Spec.Volumes {
		addVolume(&pod.Spec.Volumes[i].VolumeSource, add)
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			addEnvironment(containers[i].Env, containers[i].EnvFrom, add)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		addEnvironment(pod.Spec.EphemeralContainers[i].Env, pod.Spec.EphemeralContainers[i].EnvFrom, add)
	}
}

func addVolume(volume *corev1.VolumeSource, add func(resource, name string)) {
	if s := volume.Secret; s != nil {
		add(secrets, s.SecretName)
	}
	if c := volume.ConfigMap; c != nil {
		add(configMaps, c.Name)
	}
	if p := volume.Projected; p != nil {
		for _, source := range p.Sources {
			if source.Secret != nil {
				add(secrets, source.Secret.Name)
			}
			if source.ConfigMap != nil {
				add(configMaps, source.ConfigMap.Name)
			}
		}
	}
	if c := volume.CSI; c != nil && c.NodePublishSecretRef != nil {
		add(secrets, c.NodePublishSecretRef.Name)
	}
}

func addEnvironment(env []corev1.EnvVar, from []corev1.EnvFromSource, add func(resource, name string)) {
	for _, source := range from {
		if source.SecretRef != nil {
			add(secrets, source.SecretRef.Name)
		}
		if source.ConfigMapRef != nil {
			add(configMaps, source.ConfigMapRef.Name)
		}
	}
	for _, variable := range env {
		if variable.ValueFrom == nil {
			continue
		}
		if ref := variable.ValueFrom.SecretKeyRef; ref != nil {
			add(secrets, ref.Name)
		}
		if ref := variable.ValueFrom.ConfigMapKeyRef; ref != nil {
			add(configMaps, ref.Name)
		}
	}
}
