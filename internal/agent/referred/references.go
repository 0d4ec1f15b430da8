package referred

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/content"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

type kind string

const (
	configMaps kind = "configmaps"
	secrets    kind = "secrets"
)

// key names an object.
type key struct {
	kind            kind
	namespace, name string
}

func keyOf(obj any) key {
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		return key{configMaps, o.Namespace, o.Name}
	case *corev1.Secret:
		return key{secrets, o.Namespace, o.Name}
	}
	return key{}
}

// immutable says whether the object is one whose data nobody can change, but by another in its place.
func immutable(obj any) bool {
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	case *corev1.Secret:
		return o.Immutable != nil && *o.Immutable
	}
	return false
}

// references are the ConfigMaps and Secrets that the pod refers to.
func references(pod *corev1.Pod) map[key]bool {
	if shown, _, err := content.Shown(pod); err == nil {
		pod = shown
	}
	out := map[key]bool{}
	add := func(k kind, name string) {
		if name != "" {
			out[key{k, pod.Namespace, name}] = true
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		add(secrets, s.Name)
	}
	for _, c := range podfacts.Containers(pod) {
		environment(c, add)
	}
	for i := range pod.Spec.Volumes {
		volume(&pod.Spec.Volumes[i], add)
	}
	return out
}

func environment(c *corev1.Container, add func(kind, string)) {
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			add(configMaps, from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			add(secrets, from.SecretRef.Name)
		}
	}
	for _, v := range c.Env {
		if v.ValueFrom == nil {
			continue
		}
		if ref := v.ValueFrom.ConfigMapKeyRef; ref != nil {
			add(configMaps, ref.Name)
		}
		if ref := v.ValueFrom.SecretKeyRef; ref != nil {
			add(secrets, ref.Name)
		}
	}
}

func volume(v *corev1.Volume, add func(kind, string)) {
	switch {
	case v.ConfigMap != nil:
		add(configMaps, v.ConfigMap.Name)
	case v.Secret != nil:
		add(secrets, v.Secret.SecretName)
	case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
		add(secrets, v.CSI.NodePublishSecretRef.Name)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if source.ConfigMap != nil {
				add(configMaps, source.ConfigMap.Name)
			}
			if source.Secret != nil {
				add(secrets, source.Secret.Name)
			}
		}
	}
}
