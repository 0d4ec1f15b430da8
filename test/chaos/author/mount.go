package author

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/test/chaos/history/revision"
	"github.com/everynode/everynode/test/chaos/plan"
)

// Mount has a template refer to the objects: in each way that there is, or in whole volumes alone. Where it names the
// ConfigMap in each way it has a volume that is an image too, with a tag that moves.
func (a *Author) Mount(t *corev1.PodTemplateSpec) {
	if a == nil {
		return
	}
	for _, ref := range a.objects() {
		volume(&t.Spec, ref, a.Reads == plan.InVolumes)
		if a.Reads != plan.InVolumes {
			variables(&t.Spec.Containers[0], ref)
		}
	}
	if len(a.objects()) > 1 {
		projected(&t.Spec)
	}
	if a.Reads == plan.ReadsMap || a.Reads == plan.ReadsBoth {
		image := &corev1.ImageVolumeSource{Reference: "example.com/rules:live"}
		mount(&t.Spec, "rules", corev1.VolumeSource{Image: image}, "")
	}
}

func mount(spec *corev1.PodSpec, name string, of corev1.VolumeSource, part string) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: of})
	path := "/" + name
	if part != "" {
		path += "/" + part
	}
	main := &spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, SubPath: part})
}

// volume has a volume be of one object, of which a part is mounted, or all of it.
func volume(spec *corev1.PodSpec, ref revision.Ref, whole bool) {
	of := corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: ref.Name, Optional: new(true)}}
	if ref.Kind == revision.MapKind {
		of = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name}, Optional: new(true),
		}}
	}
	part := key
	if whole {
		part = ""
	}
	mount(spec, ref.Name, of, part)
}

// projected has a volume have both as sources.
func projected(spec *corev1.PodSpec) {
	named := func(ref revision.Ref) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: ref.Name} }
	path := func(ref revision.Ref) []corev1.KeyToPath { return []corev1.KeyToPath{{Key: key, Path: ref.Name}} }
	mount(spec, "all", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: named(revision.Map), Items: path(revision.Map), Optional: new(true),
		}},
		{Secret: &corev1.SecretProjection{
			LocalObjectReference: named(revision.Secret), Items: path(revision.Secret), Optional: new(true),
		}},
	}}}, "")
}

// variables has environment variables be made of an object, of all of it and of a key.
func variables(c *corev1.Container, ref revision.Ref) {
	name := corev1.LocalObjectReference{Name: ref.Name}
	if ref.Kind == revision.SecretKind {
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{
			SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name, Optional: new(true)},
		})
		c.Env = append(c.Env, corev1.EnvVar{Name: "PASS", ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: name, Key: key, Optional: new(true)},
		}})
		return
	}
	c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{
		ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: name, Optional: new(true)},
	})
	c.Env = append(c.Env, corev1.EnvVar{Name: "VALUE", ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: name, Key: key, Optional: new(true)},
	}})
}
