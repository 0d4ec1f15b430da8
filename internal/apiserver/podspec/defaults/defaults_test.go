package defaults

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func TestPullPolicy(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for image, want := range map[string]corev1.PullPolicy{
		"app":                          corev1.PullAlways,
		"app:latest":                   corev1.PullAlways,
		"registry.example:5000/app":    corev1.PullAlways,
		"app:v1":                       corev1.PullIfNotPresent,
		"registry.example:5000/app:v1": corev1.PullIfNotPresent,
		"app@" + digest:                corev1.PullIfNotPresent,
		"app:latest@" + digest:         corev1.PullAlways,
		"Not An Image":                 corev1.PullIfNotPresent,
	} {
		c := corev1.Container{Image: image}
		setContainerDefaults(&c)
		if c.ImagePullPolicy != want {
			t.Errorf("%s: got %s, want %s", image, c.ImagePullPolicy, want)
		}
	}
}

// Host ports and requests are filled in for pods only: what a template leaves
// out is decided when its pods are made.
func TestPodsGetMoreThanTemplates(t *testing.T) {
	spec := corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{
		Ports:     []corev1.ContainerPort{{ContainerPort: 80}},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
	}}}
	template := corev1.PodTemplateSpec{Spec: *spec.DeepCopy()}
	SetTemplate(&template)
	c := template.Spec.Containers[0]
	if c.Ports[0].HostPort != 0 || len(c.Resources.Requests) != 0 || template.Spec.EnableServiceLinks != nil {
		t.Errorf("the template got host port %d, requests %v", c.Ports[0].HostPort, c.Resources.Requests)
	}
	SetPod(&spec)
	Set(&spec)
	c = spec.Containers[0]
	if c.Ports[0].HostPort != 80 || c.Resources.Requests.Cpu().String() != "1" || !*spec.EnableServiceLinks {
		t.Errorf("the pod got host port %d, requests %v", c.Ports[0].HostPort, c.Resources.Requests)
	}
}

func TestDefaults(t *testing.T) {
	spec := corev1.PodSpec{
		DeprecatedServiceAccount: "robot",
		Overhead:                 corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1u")},
		Containers: []corev1.Container{{
			Env:           []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{}}}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}},
			StartupProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{}}},
		}},
		Volumes: []corev1.Volume{
			{Name: "nothing"},
			{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}},
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}}},
		},
	}
	Set(&spec)
	c := spec.Containers[0]
	for name, ok := range map[string]bool{
		"service account":         spec.ServiceAccountName == "robot",
		"overhead in thousandths": spec.Overhead.Cpu().String() == "1m",
		"grace period":            *spec.TerminationGracePeriodSeconds == 30,
		"scheduler":               spec.SchedulerName == "default-scheduler",
		"security context":        spec.SecurityContext != nil,
		"field version":           c.Env[0].ValueFrom.FieldRef.APIVersion == "v1",
		"probe": *c.LivenessProbe == corev1.Probe{ProbeHandler: c.LivenessProbe.ProbeHandler,
			TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3},
		"http": c.LivenessProbe.HTTPGet.Path == "/" &&
			c.LivenessProbe.HTTPGet.Scheme == corev1.URISchemeHTTP,
		"grpc service":          ptr.Deref(c.StartupProbe.GRPC.Service, "missing") == "",
		"no source is emptyDir": spec.Volumes[0].EmptyDir != nil,
		"any path on the host":  *spec.Volumes[1].HostPath.Type == corev1.HostPathUnset,
		"token for an hour":     *spec.Volumes[2].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds == 3600,
		"file mode":             *spec.Volumes[2].Projected.DefaultMode == 0o644,
	} {
		if !ok {
			t.Errorf("%s: not as it should be", name)
		}
	}
	again := spec.DeepCopy()
	Set(again)
	if again.String() != spec.String() {
		t.Error("defaults change what has defaults already")
	}
}

func TestPodLevelRequests(t *testing.T) {
	spec := corev1.PodSpec{
		Resources: &corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi")}},
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}},
	}
	SetPod(&spec)
	if cpu, memory := spec.Resources.Requests.Cpu().String(), spec.Resources.Requests.Memory().String(); cpu != "1" ||
		memory != "1Gi" {
		t.Errorf("the pod requests cpu %s and memory %s, want 1, as its container does, and 1Gi, its limit", cpu, memory)
	}
}
