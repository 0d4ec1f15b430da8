package pinning

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/objects/pod"
)

// VolumesOnly are the images of a template that are pulled for its volumes, and for no container.
func VolumesOnly(template *corev1.PodSpec) map[string]bool {
	out := map[string]bool{}
	taggedVolumes(template, func(v *corev1.Volume) { out[v.Image.Reference] = true })
	tagged(template, func(c *corev1.Container) { delete(out, c.Image) })
	return out
}

// resolvedVolume is resolved for an image volume of the template. What a node says of it stands at the mounts of
// containers. A node need not say it: a kubelet does so with its feature gate ImageVolumeWithDigest alone. So it is
// known without a word once each container that mounts it has its image: volumes are there before that.
func resolvedVolume(v *corev1.Volume, p *corev1.Pod) (of string, known, asked bool) {
	if !tellsVolume(v, p) {
		return "", false, true
	}
	ref, known := mounted(p, v.Name)
	if is := pod.Volume(&p.Spec, v.Name); is != nil && is.Image != nil {
		name, has, _ := strings.Cut(is.Image.Reference, digest)
		if name == repository(v.Image.Reference) && isDigest(has) {
			return digest[1:] + has, known, false
		}
	}
	return digestOf(v.Image.Reference, ref), known, true
}

// tellsVolume is tells for an image volume.
func tellsVolume(v *corev1.Volume, p *corev1.Pod) bool {
	return variant.MarkOf(&p.ObjectMeta).Effect == "" || namesVolume(p, v)
}

// namesVolume is names for an image volume.
func namesVolume(p *corev1.Pod, of *corev1.Volume) bool {
	is := pod.Volume(&p.Spec, of.Name)
	return is != nil && is.Image != nil && is.Image.Reference == of.Image.Reference
}

// mounted is what the node says of the image of a volume, "" if nothing. Known tells that nothing more will be said.
func mounted(p *corev1.Pod, volume string) (ref string, known bool) {
	some, all := false, true
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			has := pulled(p, containers[i].Name) != ""
			some, all = some || has, all && (has || !mounts(&containers[i], volume))
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			if of := refOf(&statuses[i], volume); of != "" {
				return of, true
			}
		}
	}
	return "", some && all
}

func mounts(c *corev1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
}

func refOf(s *corev1.ContainerStatus, volume string) string {
	for i := range s.VolumeMounts {
		if m := &s.VolumeMounts[i]; m.Name == volume && m.VolumeStatus != nil && m.VolumeStatus.Image != nil {
			return m.VolumeStatus.Image.ImageRef
		}
	}
	return ""
}
