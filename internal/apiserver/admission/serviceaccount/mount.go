package serviceaccount

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/storage/names"
)

const (
	// MountPath is where client libraries look for the token.
	MountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

	volumePrefix    = "kube-api-access-"
	rootCAConfigMap = "kube-root-ca.crt"
	// tokenSeconds is an hour and a little: the agent renews after 80 % of it.
	tokenSeconds = 60*60 + 7
	fileMode     = 0o644
)

// mountsToken reports whether a pod wants its token; the pod's word beats the account's.
func mountsToken(pod *corev1.Pod, account *corev1.ServiceAccount) bool {
	if wish := pod.Spec.AutomountServiceAccountToken; wish != nil {
		return *wish
	}
	if wish := account.AutomountServiceAccountToken; wish != nil {
		return *wish
	}
	return true
}

// mountToken mounts the token into every container that has nothing at MountPath.
func mountToken(pod *corev1.Pod, generator names.NameGenerator) {
	name, found := existingVolume(pod)
	if !found {
		name = unusedName(pod, generator)
	}
	mount := corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: MountPath}
	used := addMount(pod.Spec.InitContainers, mount)
	used = addMount(pod.Spec.Containers, mount) || used
	if used && !found {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenVolume()},
		})
	}
}

func existingVolume(pod *corev1.Pod) (string, bool) {
	for _, volume := range pod.Spec.Volumes {
		if strings.HasPrefix(volume.Name, volumePrefix) {
			return volume.Name, true
		}
	}
	return "", false
}

func unusedName(pod *corev1.Pod, generator names.NameGenerator) string {
	taken := map[string]bool{}
	for _, volume := range pod.Spec.Volumes {
		taken[volume.Name] = true
	}
	for {
		if name := generator.GenerateName(volumePrefix); !taken[name] {
			return name
		}
	}
}

func addMount(containers []corev1.Container, mount corev1.VolumeMount) bool {
	added := false
	for i := range containers {
		if !mountedAt(containers[i], mount.MountPath) {
			containers[i].VolumeMounts = append(containers[i].VolumeMounts, mount)
			added = true
		}
	}
	return added
}

func mountedAt(container corev1.Container, path string) bool {
	for _, mount := range container.VolumeMounts {
		if mount.MountPath == path {
			return true
		}
	}
	return false
}

func tokenVolume() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(fileMode)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Path: "token", ExpirationSeconds: new(int64(tokenSeconds)),
			}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCAConfigMap},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{
				Items: []corev1.DownwardAPIVolumeFile{{
					Path:     "namespace",
					FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
				}},
			}},
		},
	}
}
