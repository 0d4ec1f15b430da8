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

// nobodys begins a name that no object can have.
const nobodys = "_"

// InVolumes is the name by which volumes of pods refer to the member. For what was missing it is one that no object can
// have: a volume shows what is optional as soon as somebody makes it. Environment variables refer to the copy in any
// case: they are read when a container starts, and the API lets them name only what an object can be called.
func (m *Member) InVolumes() string {
	if m.Absent {
		return nobodys + m.Copy
	}
	return m.Copy
}

// copied are the names by which volumes and environment variables refer to members.
func copied(members []Member) (volumes, variables map[Ref]string) {
	volumes, variables = make(map[Ref]string, len(members)), make(map[Ref]string, len(members))
	for _, m := range members {
		volumes[m.Ref], variables[m.Ref] = m.InVolumes(), m.Copy
	}
	return volumes, variables
}

// Rewrite has a pod's spec name the copies of members in place of the objects. The spec is changed in
// place; it must be nobody else's.
func Rewrite(spec *corev1.PodSpec, members []Member) {
	rename := func(copies map[Ref]string) func(Kind, *string) {
		return func(kind Kind, name *string) {
			if to, is := copies[Ref{kind, *name}]; is {
				*name = to
			}
		}
	}
	volumes, variables := copied(members)
	walk(spec, rename(volumes), rename(variables))
}

// Renamed is a name in the JSON of a pod's spec that was replaced: Path is its JSON pointer (RFC 6901) below the spec.
type Renamed struct{ Path, Name string }

// RewriteJSON is Rewrite for a spec as JSON has it, whose fields may be newer than the Go types. It returns what it
// replaced, in order. What is not of the form of a pod's spec it leaves alone.
func RewriteJSON(spec map[string]any, members []Member) (out []Renamed) {
	volumes, variables := copied(members)
	rename := func(copies map[Ref]string, path string, in map[string]any, kind Kind, source, field string) {
		of, _ := in[source].(map[string]any)
		name, _ := of[field].(string)
		if to, is := copies[Ref{kind, name}]; is && name != "" {
			of[field] = to
			out = append(out, Renamed{path + "/" + source + "/" + field, to})
		}
	}
	each(spec, "", "volumes", func(path string, v map[string]any) {
		rename(volumes, path, v, ConfigMap, "configMap", "name")
		rename(volumes, path, v, Secret, "secret", "secretName")
		projected, _ := v["projected"].(map[string]any)
		each(projected, path+"/projected", "sources", func(path string, source map[string]any) {
			rename(volumes, path, source, ConfigMap, "configMap", "name")
			rename(volumes, path, source, Secret, "secret", "name")
		})
	})
	for _, containers := range []string{"initContainers", "containers"} {
		each(spec, "", containers, func(path string, c map[string]any) {
			each(c, path, "envFrom", func(path string, from map[string]any) {
				rename(variables, path, from, ConfigMap, "configMapRef", "name")
				rename(variables, path, from, Secret, "secretRef", "name")
			})
			each(c, path, "env", func(path string, env map[string]any) {
				from, _ := env["valueFrom"].(map[string]any)
				rename(variables, path+"/valueFrom", from, ConfigMap, "configMapKeyRef", "name")
				rename(variables, path+"/valueFrom", from, Secret, "secretKeyRef", "name")
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
