package content

import (
	"cmp"
	"slices"
	"strconv"
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
	walk(spec, func(kind Kind, name *string) {
		if ref := (Ref{kind, *name}); *name != "" && !ref.IsRelease() {
			out = append(out, ref)
		}
	})
	slices.SortFunc(out, Ref.Compare)
	return slices.Compact(out)
}

// walk visits each place of a pod's spec that names a ConfigMap or Secret which containers see.
func walk(spec *corev1.PodSpec, visit func(Kind, *string)) {
	for i := range spec.Volumes {
		walkVolume(&spec.Volumes[i].VolumeSource, visit)
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			walkContainer(&containers[i], visit)
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

// Rewrite has a pod's spec name the copies of members in place of the objects. The spec is changed in
// place; it must be nobody else's.
func Rewrite(spec *corev1.PodSpec, members []Member) {
	copies := make(map[Ref]string, len(members))
	for _, m := range members {
		copies[m.Ref] = m.Copy
	}
	walk(spec, func(kind Kind, name *string) {
		if to, is := copies[Ref{kind, *name}]; is {
			*name = to
		}
	})
}

// Renamed is a name in the JSON of a pod's spec that was replaced: Path is its JSON pointer (RFC 6901) below the spec.
type Renamed struct{ Path, Name string }

// RewriteJSON is Rewrite for a spec as JSON has it, whose fields may be newer than the Go types. It returns what it
// replaced, in order. What is not of the form of a pod's spec it leaves alone.
func RewriteJSON(spec map[string]any, members []Member) (out []Renamed) {
	copies := make(map[Ref]string, len(members))
	for _, m := range members {
		copies[m.Ref] = m.Copy
	}
	rename := func(path string, in map[string]any, kind Kind, source, field string) {
		of, _ := in[source].(map[string]any)
		name, _ := of[field].(string)
		if to, is := copies[Ref{kind, name}]; is && name != "" {
			of[field] = to
			out = append(out, Renamed{path + "/" + source + "/" + field, to})
		}
	}
	each(spec, "", "volumes", func(path string, v map[string]any) {
		rename(path, v, ConfigMap, "configMap", "name")
		rename(path, v, Secret, "secret", "secretName")
		projected, _ := v["projected"].(map[string]any)
		each(projected, path+"/projected", "sources", func(path string, source map[string]any) {
			rename(path, source, ConfigMap, "configMap", "name")
			rename(path, source, Secret, "secret", "name")
		})
	})
	for _, containers := range []string{"initContainers", "containers"} {
		each(spec, "", containers, func(path string, c map[string]any) {
			each(c, path, "envFrom", func(path string, from map[string]any) {
				rename(path, from, ConfigMap, "configMapRef", "name")
				rename(path, from, Secret, "secretRef", "name")
			})
			each(c, path, "env", func(path string, env map[string]any) {
				from, _ := env["valueFrom"].(map[string]any)
				rename(path+"/valueFrom", from, ConfigMap, "configMapKeyRef", "name")
				rename(path+"/valueFrom", from, Secret, "secretKeyRef", "name")
			})
		})
	}
	return out
}

// each visits the objects of a list, with their JSON pointers.
func each(in map[string]any, path, list string, visit func(path string, entry map[string]any)) {
	entries, _ := in[list].([]any)
	for i, e := range entries {
		if entry, is := e.(map[string]any); is {
			visit(path+"/"+list+"/"+strconv.Itoa(i), entry)
		}
	}
}
