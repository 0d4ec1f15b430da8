package content

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Kind is the kind of an object that can be content.
type Kind string

// The kinds.
const (
	ConfigMap Kind = "ConfigMap"
	Secret    Kind = "Secret"
)

// Ref names an object in the namespace of the template.
type Ref struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"`
}

func (r Ref) String() string { return string(r.Kind) + " " + r.Name }

// Compare orders by kind and name.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.Kind, o.Kind), cmp.Compare(r.Name, o.Name))
}

// release is how the Secrets begin in which Helm keeps what it has installed.
const release = "sh.helm.release.v1."

// IsRelease reports whether Helm keeps there what it has installed. Its type says nothing: that of an object that is
// not there is not known.
func (r Ref) IsRelease() bool { return r.Kind == Secret && strings.HasPrefix(r.Name, release) }

// Refs returns what a template names in volumes, envFrom and valueFrom, each once and in order. What a
// volume's driver or a registry is to be told is not among it, and what Helm has installed is not.
func Refs(spec *corev1.PodSpec) []Ref {
	var out []Ref
	add := func(kind Kind, name *string) {
		if ref := (Ref{kind, *name}); *name != "" && !ref.IsRelease() {
			out = append(out, ref)
		}
	}
	walk(spec, add, add)
	slices.SortFunc(out, Ref.Compare)
	return slices.Compact(out)
}

// walk visits each place of a pod's spec that names a ConfigMap or Secret which containers see.
func walk(spec *corev1.PodSpec, volume, variable func(Kind, *string)) {
	for i := range spec.Volumes {
		walkVolume(&spec.Volumes[i].VolumeSource, volume)
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			walkContainer(&containers[i], variable)
		}
	}
}

func walkVolume(v *corev1.VolumeSource, visit func(Kind, *string)) {
	if m := v.ConfigMap; m != nil {
		visit(ConfigMap, &m.Name)
	}
	if s := v.Secret; s != nil {
		visit(Secret, &s.SecretName)
	}
	if v.Projected == nil {
		return
	}
	for i := range v.Projected.Sources {
		source := &v.Projected.Sources[i]
		if m := source.ConfigMap; m != nil {
			visit(ConfigMap, &m.Name)
		}
		if s := source.Secret; s != nil {
			visit(Secret, &s.Name)
		}
	}
}

func walkContainer(c *corev1.Container, visit func(Kind, *string)) {
	for i := range c.EnvFrom {
		from := &c.EnvFrom[i]
		if m := from.ConfigMapRef; m != nil {
			visit(ConfigMap, &m.Name)
		}
		if s := from.SecretRef; s != nil {
			visit(Secret, &s.Name)
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		if k := from.ConfigMapKeyRef; k != nil {
			visit(ConfigMap, &k.Name)
		}
		if k := from.SecretKeyRef; k != nil {
			visit(Secret, &k.Name)
		}
	}
}
