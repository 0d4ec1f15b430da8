package defaults

import (
	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

func setContainerDefaults(c *corev1.Container) {
	if c.ImagePullPolicy == "" { // Parsing an image's name is slow, and stored objects need not.
		c.ImagePullPolicy = pullPolicy(c.Image)
	}
	fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			setFieldDefaults(from.FieldRef)
			if from.FileKeyRef != nil {
				fillPointer(&from.FileKeyRef.Optional, false)
			}
		}
	}
	RoundResources(c.Resources.Limits)
	RoundResources(c.Resources.Requests)
	setProbeDefaults(c.LivenessProbe)
	setProbeDefaults(c.ReadinessProbe)
	setProbeDefaults(c.StartupProbe)
	if c.Lifecycle != nil {
		if hook := c.Lifecycle.PostStart; hook != nil {
			setHTTPDefaults(hook.HTTPGet)
		}
		if hook := c.Lifecycle.PreStop; hook != nil {
			setHTTPDefaults(hook.HTTPGet)
		}
	}
}

// pullPolicy is Always for an image that can change under its name. A name
// that cannot be parsed is left for the node to complain about.
func pullPolicy(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	if tagged, ok := named.(reference.Tagged); ok {
		if tagged.Tag() == "latest" {
			return corev1.PullAlways
		}
		return corev1.PullIfNotPresent
	}
	if _, pinned := named.(reference.Digested); pinned {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

func setProbeDefaults(p *corev1.Probe) {
	if p == nil {
		return
	}
	fill(&p.TimeoutSeconds, 1)
	fill(&p.PeriodSeconds, 10)
	fill(&p.SuccessThreshold, 1)
	fill(&p.FailureThreshold, 3)
	setHTTPDefaults(p.HTTPGet)
	if p.GRPC != nil {
		fillPointer(&p.GRPC.Service, "")
	}
}

func setHTTPDefaults(get *corev1.HTTPGetAction) {
	if get == nil {
		return
	}
	fill(&get.Path, "/")
	fill(&get.Scheme, corev1.URISchemeHTTP)
}

func setFieldDefaults(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		fill(&ref.APIVersion, "v1")
	}
}

// requestLimits requests as much of each resource as a container is limited to,
// where it does not say what it requests.
func requestLimits(r *corev1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = make(corev1.ResourceList, len(r.Limits))
	}
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}
