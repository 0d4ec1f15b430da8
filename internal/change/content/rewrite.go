package content

import (
	"crypto/sha256"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
)

// CopyRef is the object in the API that environment variables refer to: the copy, and an empty one for what was
// missing. A missing object would do, but then anybody could make it. The empty copy has a name of its own: pods of an
// older version wait for an object that is called Copy, and must not start without what they need.
func (m *Member) CopyRef() Ref {
	if !m.Absent {
		return Ref{m.Kind, m.Copy}
	}
	of := sha256.Sum256([]byte("empty copy for " + m.Copy))
	return Ref{m.Kind, NameFor(m.Name, of[:])}
}

// HasCopy reports whether there is to be a copy of the member. Of what was missing there can be none where no object
// can have its name, which the API takes in volumes alone.
func (m *Member) HasCopy() bool { return !m.Absent || len(validation.IsDNS1123Subdomain(m.Name)) == 0 }

// nobodys begins a name that no object can have.
const nobodys = "_"

// inVolumes is the name by which volumes of pods refer to the member. For what was missing it is one that no object can
// have. The API takes such a name of no environment variable.
func (m *Member) inVolumes() string {
	if m.Absent {
		return nobodys + m.Copy
	}
	return m.Copy
}

// isCalled reports whether environment variables of a pod that has the member name it so. An older version's pods name
// a missing object.
func (m *Member) isCalled(name string) bool { return name == m.CopyRef().Name || name == m.Copy }

// names are how a pod's spec refers to members: in volumes, and in environment variables. wanting are the empty copies,
// by the objects that were missing.
type names struct{ volumes, variables, wanting map[Ref]string }

func namesOf(members []Member) names {
	n := names{make(map[Ref]string, len(members)), make(map[Ref]string, len(members)), map[Ref]string{}}
	for _, m := range members {
		n.volumes[m.Ref], n.variables[m.Ref] = m.inVolumes(), m.CopyRef().Name
		if m.Absent {
			n.wanting[m.Ref] = m.CopyRef().Name
		}
	}
	return n
}

// heldUp is the environment variable by which a container waits whose envFrom needs an object that was missing, as it
// would for that object. It refers to a key that the empty copy does not have, called like the object.
const heldUp = "EVERYNODE_MISSING_CONTENT"

// Rewrite has a pod's spec name the copies of members in place of the objects. The spec is changed in
// place; it must be nobody else's.
func Rewrite(spec *corev1.PodSpec, members []Member) {
	n := namesOf(members)
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			n.holdUp(&containers[i])
		}
	}
	rename := func(copies map[Ref]string) func(Kind, *string) {
		return func(kind Kind, name *string) {
			if to, is := copies[Ref{kind, *name}]; is {
				*name = to
			}
		}
	}
	walk(spec, rename(n.volumes), rename(n.variables))
}

// holdUp has a container wait if its envFrom needs what was missing.
func (n *names) holdUp(c *corev1.Container) {
	for _, from := range c.EnvFrom {
		waits := &corev1.EnvVarSource{}
		if m := from.ConfigMapRef; m != nil && !ptr.Deref(m.Optional, false) {
			if empty, is := n.wanting[Ref{ConfigMap, m.Name}]; is {
				waits.ConfigMapKeyRef = &corev1.ConfigMapKeySelector{LocalObjectReference: local(empty), Key: m.Name}
			}
		}
		if s := from.SecretRef; s != nil && !ptr.Deref(s.Optional, false) {
			if empty, is := n.wanting[Ref{Secret, s.Name}]; is {
				waits.SecretKeyRef = &corev1.SecretKeySelector{LocalObjectReference: local(empty), Key: s.Name}
			}
		}
		if *waits != (corev1.EnvVarSource{}) {
			c.Env = append(c.Env, corev1.EnvVar{Name: heldUp, ValueFrom: waits})
			return
		}
	}
}

func local(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// Rewritten is a change of the JSON of a pod's spec, as JSON Patch (RFC 6902) has it. Path is below the spec.
type Rewritten struct {
	Op, Path string
	Value    any
}

// RewriteJSON is Rewrite for a spec as JSON has it, whose fields may be newer than the Go types. It returns what it
// changed, in order. What is not of the form of a pod's spec it leaves alone.
func RewriteJSON(spec map[string]any, members []Member) (out []Rewritten) {
	n := namesOf(members)
	rename := func(copies map[Ref]string, path string, in map[string]any, kind Kind, source, field string) {
		of, _ := in[source].(map[string]any)
		name, _ := of[field].(string)
		if to, is := copies[Ref{kind, name}]; is && name != "" {
			of[field] = to
			out = append(out, Rewritten{"replace", path + "/" + source + "/" + field, to})
		}
	}
	each(spec, "", "volumes", func(path string, v map[string]any) {
		rename(n.volumes, path, v, ConfigMap, "configMap", "name")
		rename(n.volumes, path, v, Secret, "secret", "secretName")
		projected, _ := v["projected"].(map[string]any)
		each(projected, path+"/projected", "sources", func(path string, source map[string]any) {
			rename(n.volumes, path, source, ConfigMap, "configMap", "name")
			rename(n.volumes, path, source, Secret, "secret", "name")
		})
	})
	for _, containers := range []string{"initContainers", "containers"} {
		each(spec, "", containers, func(path string, c map[string]any) {
			out = append(out, n.holdUpJSON(path, c)...)
			each(c, path, "envFrom", func(path string, from map[string]any) {
				rename(n.variables, path, from, ConfigMap, "configMapRef", "name")
				rename(n.variables, path, from, Secret, "secretRef", "name")
			})
			each(c, path, "env", func(path string, env map[string]any) {
				from, _ := env["valueFrom"].(map[string]any)
				rename(n.variables, path+"/valueFrom", from, ConfigMap, "configMapKeyRef", "name")
				rename(n.variables, path+"/valueFrom", from, Secret, "secretKeyRef", "name")
			})
		})
	}
	return out
}

// holdUpJSON is holdUp for a container as JSON has it.
func (n *names) holdUpJSON(path string, c map[string]any) (out []Rewritten) {
	each(c, path, "envFrom", func(_ string, from map[string]any) {
		for _, in := range []struct {
			kind      Kind
			ref, keys string
		}{{ConfigMap, "configMapRef", "configMapKeyRef"}, {Secret, "secretRef", "secretKeyRef"}} {
			of, _ := from[in.ref].(map[string]any)
			name, _ := of["name"].(string)
			empty, is := n.wanting[Ref{in.kind, name}]
			if !is || of["optional"] == true || out != nil {
				continue
			}
			waits := map[string]any{"name": heldUp, "valueFrom": map[string]any{
				in.keys: map[string]any{"name": empty, "key": name},
			}}
			env, has := c["env"].([]any)
			c["env"] = append(env, waits)
			if has {
				out = []Rewritten{{"add", path + "/env/-", waits}}
			} else {
				out = []Rewritten{{"add", path + "/env", []any{waits}}}
			}
		}
	})
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
