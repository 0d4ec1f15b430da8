package podspec

import corev1 "k8s.io/api/core/v1"

// dropGated clears the fields that Kubernetes acts on only behind a feature gate which is off by default, as its API
// server does: nothing is stored that no node will do. docs/differences.md lists them.
func dropGated(spec *corev1.PodSpec) {
	spec.SchedulingGroup, spec.EvictionResponders = nil, nil // GenericWorkload, EvictionRequestAPI
	for i := range spec.Volumes {
		dropGatedSources(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		dropGatedOfContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		dropGatedOfContainer(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		dropGatedOfContainer(&c) // what it points to is the same
	}
}

// dropGatedSources clears EmptyDirVolumeMode's field, and those of AtomicWriteVolumeUserFields.
func dropGatedSources(v *corev1.Volume) {
	if v.EmptyDir != nil {
		v.EmptyDir.Mode = nil
	}
	if v.Secret != nil {
		v.Secret.DefaultUser = nil
		dropUsers(v.Secret.Items)
	}
	if v.ConfigMap != nil {
		v.ConfigMap.DefaultUser = nil
		dropUsers(v.ConfigMap.Items)
	}
	if v.DownwardAPI != nil {
		v.DownwardAPI.DefaultUser = nil
		dropFileUsers(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		v.Projected.DefaultUser = nil
		for i := range v.Projected.Sources {
			dropProjectedUsers(&v.Projected.Sources[i])
		}
	}
}

func dropProjectedUsers(s *corev1.VolumeProjection) {
	if s.Secret != nil {
		dropUsers(s.Secret.Items)
	}
	if s.ConfigMap != nil {
		dropUsers(s.ConfigMap.Items)
	}
	if s.DownwardAPI != nil {
		dropFileUsers(s.DownwardAPI.Items)
	}
	if s.ServiceAccountToken != nil {
		s.ServiceAccountToken.User = nil
	}
	if s.ClusterTrustBundle != nil {
		s.ClusterTrustBundle.User = nil
	}
	if s.PodCertificate != nil {
		s.PodCertificate.User = nil
	}
}

func dropUsers(items []corev1.KeyToPath) {
	for i := range items {
		items[i].User = nil
	}
}

func dropFileUsers(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		items[i].User = nil
	}
}

// dropGatedOfContainer clears the fields of VolumeBindMountOptions, H2CContainerProbe and GRPCContainerProbeTLS.
func dropGatedOfContainer(c *corev1.Container) {
	for i := range c.VolumeMounts {
		c.VolumeMounts[i].BindMountOptions = nil
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			dropProtocol(p.HTTPGet)
			if p.GRPC != nil {
				p.GRPC.Mode = nil
			}
		}
	}
	if c.Lifecycle == nil {
		return
	}
	for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if h != nil {
			dropProtocol(h.HTTPGet)
		}
	}
}

func dropProtocol(get *corev1.HTTPGetAction) {
	if get != nil {
		get.Protocol = nil
	}
}
