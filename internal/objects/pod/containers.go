package pod

import corev1 "k8s.io/api/core/v1"

// MaxVolumeImageRef is how long what a status says of an image volume's image may be.
const MaxVolumeImageRef = 256

// Volume is the volume of that name; nil if there is none.
func Volume(spec *corev1.PodSpec, name string) *corev1.Volume {
	for i := range spec.Volumes {
		if spec.Volumes[i].Name == name {
			return &spec.Volumes[i]
		}
	}
	return nil
}

// Ephemeral is a container that was added to a running pod, in the form of all others. It is never started again.
func Ephemeral(c *corev1.EphemeralContainer) *corev1.Container {
	out, never := corev1.Container(c.EphemeralContainerCommon), corev1.ContainerRestartPolicyNever
	out.RestartPolicy = &never
	return &out
}

// Container finds the container of that name, of whatever sort; nil if there is none.
func Container(p *corev1.Pod, name string) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if c := &p.Spec.EphemeralContainers[i]; c.Name == name {
			return Ephemeral(c)
		}
	}
	return nil
}

// Containers are all containers of the pod, of whatever sort; those for debugging come last.
func Containers(p *corev1.Pod) []*corev1.Container {
	out := make([]*corev1.Container, 0, len(p.Spec.InitContainers)+len(p.Spec.Containers)+len(p.Spec.EphemeralContainers))
	for i := range p.Spec.InitContainers {
		out = append(out, &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		out = append(out, &p.Spec.Containers[i])
	}
	for i := range p.Spec.EphemeralContainers {
		out = append(out, Ephemeral(&p.Spec.EphemeralContainers[i]))
	}
	return out
}

// ContainerStatus is the status of the container of that name, of whatever sort; nil if there is none.
func ContainerStatus(s *corev1.PodStatus, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{
		s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses,
	} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
