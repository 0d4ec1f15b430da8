package references

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestReferences(t *testing.T) {
	env := func(secret, configMap string) []corev1.EnvVar {
		return []corev1.EnvVar{
			{Name: "plain", Value: "x"},
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}}},
			{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}},
			{ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{}}},
		}
	}
	local := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	volumes := []corev1.VolumeSource{{Secret: &corev1.SecretVolumeSource{SecretName: "s1"}},
		{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c1")}},
		{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: local("s2")}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("c2")}},
			{DownwardAPI: &corev1.DownwardAPIProjection{}},
		}}},
		{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: new(local("s3"))}}, {CSI: &corev1.CSIVolumeSource{}},
		{FlexVolume: &corev1.FlexVolumeSource{SecretRef: new(local("s8"))}}, {RBD: &corev1.RBDVolumeSource{SecretRef: new(local("s9"))}},
		{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s10"}}, {HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}
	spec := corev1.PodSpec{ServiceAccountName: "account"}
	for _, v := range volumes {
		spec.Volumes = append(spec.Volumes, corev1.Volume{VolumeSource: v})
	}
	spec.ImagePullSecrets = []corev1.LocalObjectReference{local("s4")}
	spec.InitContainers = []corev1.Container{{Env: env("s5", "c5")}}
	spec.Containers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("s6")}},
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("c6")}},
	}}}
	spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: env("s7", "c7")}}}
	got := map[string]bool{}
	Of(&spec, func(resource, name string) { got[resource+" "+name] = true })
	want := []string{"serviceaccounts account"}
	for _, n := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10} {
		want = append(want, fmt.Sprint("secrets s", n))
	}
	for _, n := range []int{1, 2, 5, 6, 7} {
		want = append(want, fmt.Sprint("configmaps c", n))
	}
	for _, ref := range want {
		if !got[ref] {
			t.Errorf("%v is missing", ref)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d references, want %d: %v", len(got), len(want), got)
	}
}
