// Package defaults gives the fields of a specification that were left out their values, in place.
package defaults

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// SetTemplate fills in what a pod template leaves out.
func SetTemplate(template *corev1.PodTemplateSpec) {
	Set(&template.Spec)
}

// Set fills in what every pod specification may leave out, whether it
// belongs to a pod or to a template.
func Set(spec *corev1.PodSpec) {
	fill(&spec.DNSPolicy, corev1.DNSClusterFirst)
	fill(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	fill(&spec.SchedulerName, corev1.DefaultSchedulerName)
	fillPointer(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	linkServiceAccount(spec)
	dropGated(spec)
	for i := range spec.Volumes {
		setVolumeDefaults(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		setContainerDefaults(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		setContainerDefaults(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		setContainerDefaults(&c)
		spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
	RoundResources(spec.Overhead)
	if spec.Resources != nil {
		RoundResources(spec.Resources.Limits)
		RoundResources(spec.Resources.Requests)
	}
}

// SetPod fills in what only a pod, not a template, gets by default. It
// runs after SetDefaults.
func SetPod(spec *corev1.PodSpec) {
	for i := range spec.Containers {
		requestLimits(&spec.Containers[i].Resources)
	}
	for i := range spec.InitContainers {
		requestLimits(&spec.InitContainers[i].Resources)
	}
	setPodResourceDefaults(spec)
	fillPointer(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	if spec.HostNetwork {
		publishHostPorts(spec.Containers)
		publishHostPorts(spec.InitContainers)
	}
}

// linkServiceAccount keeps serviceAccount, the field's old name, equal to
// serviceAccountName.
func linkServiceAccount(spec *corev1.PodSpec) {
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = spec.DeprecatedServiceAccount
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
}

// publishHostPorts gives every port of a pod in the node's network its own number there.
func publishHostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			fill(&containers[i].Ports[j].HostPort, containers[i].Ports[j].ContainerPort)
		}
	}
}

// RoundResources rounds every quantity up to a thousandth, the finest amount that is kept.
func RoundResources(list corev1.ResourceList) {
	for name, quantity := range list {
		if !quantity.RoundUp(resource.Milli) {
			list[name] = quantity
		}
	}
}

// fill sets an empty field to its default.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// fillPointer sets a missing optional field to its default.
func fillPointer[T any](field **T, value T) {
	if *field == nil {
		*field = ptr.To(value)
	}
}

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
