package revision

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// LiveAnnotation says what the volumes of a running pod show in place of what its spec names.
const LiveAnnotation = "everynode.io/live-content"

// Live is what the annotation says of when the pod was given a content.
type Live struct {
	Content string    `json:"content"`
	At      time.Time `json:"at"`
}

// LiveOf is the zero Live where a pod has none that can be read.
func LiveOf(p *corev1.Pod) (l Live) {
	err := json.Unmarshal([]byte(p.Annotations[LiveAnnotation]), &l)
	if err != nil {
		return Live{}
	}
	return l
}

// ShownBy reports whether a pod's node says that the pod's volumes show what it was given.
func (l Live) ShownBy(p *corev1.Pod) bool {
	key := l.Content + " of " + l.At.UTC().Format(time.RFC3339Nano)
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		is := c.Type == "everynode.io/ContentMounted" && c.Status == corev1.ConditionTrue
		return is && strings.HasPrefix(c.Message, key)
	})
}

// Named are the ConfigMaps and Secrets that a pod's spec names, each once and in order.
func Named(spec *corev1.PodSpec) []Ref {
	return slices.Compact(sorted(append(inVolumes(spec), inVariables(spec)...)))
}

// Shown are those that a pod has: its volumes show what the annotation says. What environment variables were made of
// is the spec's.
func Shown(p *corev1.Pod) []Ref {
	var to struct {
		Volumes []struct{ Kind, Name, Copy string } `json:"volumes"`
	}
	if text := p.Annotations[LiveAnnotation]; text != "" {
		err := json.Unmarshal([]byte(text), &to)
		if err != nil {
			return []Ref{{Kind: "unread", Name: err.Error()}}
		}
	}
	out := inVolumes(&p.Spec)
	for i, ref := range out {
		for _, v := range to.Volumes {
			if v.Kind == ref.Kind && v.Name == ref.Name {
				out[i].Name = v.Copy
			}
		}
	}
	return slices.Compact(sorted(append(out, inVariables(&p.Spec)...)))
}

func sorted(refs []Ref) []Ref {
	slices.SortFunc(refs, func(a, b Ref) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return refs
}

func inVolumes(spec *corev1.PodSpec) (out []Ref) {
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.ConfigMap != nil {
			out = append(out, Ref{MapKind, v.ConfigMap.Name})
		}
		if v.Secret != nil {
			out = append(out, Ref{SecretKind, v.Secret.SecretName})
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			// The API adds one that is the cluster's own, with the token.
			if s.ConfigMap != nil && s.ConfigMap.Name != "kube-root-ca.crt" {
				out = append(out, Ref{MapKind, s.ConfigMap.Name})
			}
			if s.Secret != nil {
				out = append(out, Ref{SecretKind, s.Secret.Name})
			}
		}
	}
	return out
}

func inVariables(spec *corev1.PodSpec) (out []Ref) {
	for i := range spec.Containers {
		for _, from := range spec.Containers[i].EnvFrom {
			if from.ConfigMapRef != nil {
				out = append(out, Ref{MapKind, from.ConfigMapRef.Name})
			}
			if from.SecretRef != nil {
				out = append(out, Ref{SecretKind, from.SecretRef.Name})
			}
		}
		for _, v := range spec.Containers[i].Env {
			if v.ValueFrom == nil {
				continue
			}
			if k := v.ValueFrom.ConfigMapKeyRef; k != nil {
				out = append(out, Ref{MapKind, k.Name})
			}
			if k := v.ValueFrom.SecretKeyRef; k != nil {
				out = append(out, Ref{SecretKind, k.Name})
			}
		}
	}
	return out
}
