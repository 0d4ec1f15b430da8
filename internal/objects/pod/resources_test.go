package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func amounts(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	if cpu != "" {
		out[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		out[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return out
}

func TestQOS(t *testing.T) {
	both := amounts("1", "1Gi")
	for name, c := range map[string]struct {
		list []corev1.ResourceRequirements
		want corev1.PodQOSClass
	}{
		"nothing":               {[]corev1.ResourceRequirements{{}}, corev1.PodQOSBestEffort},
		"zero":                  {[]corev1.ResourceRequirements{{Requests: amounts("0", "")}}, corev1.PodQOSBestEffort},
		"requests alone":        {[]corev1.ResourceRequirements{{Requests: both}}, corev1.PodQOSBurstable},
		"limits equal requests": {[]corev1.ResourceRequirements{{Requests: both, Limits: both}}, corev1.PodQOSGuaranteed},
		"limits above requests": {[]corev1.ResourceRequirements{{Requests: amounts("500m", "1Gi"), Limits: both}}, corev1.PodQOSBurstable},
		"cpu unlimited":         {[]corev1.ResourceRequirements{{Requests: amounts("", "1Gi"), Limits: amounts("", "1Gi")}}, corev1.PodQOSBurstable},
		"one of two unlimited":  {[]corev1.ResourceRequirements{{Requests: both, Limits: both}, {}}, corev1.PodQOSBurstable},
	} {
		p := &corev1.Pod{}
		for _, r := range c.list {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Resources: r})
		}
		if got := QOS(p); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestQOSOfThePodAsAWhole(t *testing.T) {
	both := amounts("1", "1Gi")
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}
	for _, c := range []struct {
		whole corev1.ResourceRequirements
		want  corev1.PodQOSClass
	}{
		{corev1.ResourceRequirements{Requests: both, Limits: both}, corev1.PodQOSGuaranteed},
		{corev1.ResourceRequirements{Requests: both}, corev1.PodQOSBurstable},
		{corev1.ResourceRequirements{}, corev1.PodQOSBestEffort},
	} {
		p.Spec.Resources = &c.whole
		if got := QOS(p); got != c.want {
			t.Errorf("%v: got %s, want %s", c.whole, got, c.want)
		}
	}
}

func TestLimit(t *testing.T) {
	limited := func(memory string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Limits: amounts("", memory)}}
	}
	always := corev1.ContainerRestartPolicyAlways
	sidecar := limited("4Mi")
	sidecar.RestartPolicy = &always
	for name, c := range map[string]struct {
		init, main []corev1.Container
		whole      *corev1.ResourceRequirements
		want       string
	}{
		"no container":              {want: "0"},
		"the sum":                   {main: []corev1.Container{limited("1Mi"), limited("2Mi")}, want: "3Mi"},
		"one without":               {main: []corev1.Container{limited("1Mi"), {}}, want: "0"},
		"an init container without": {init: []corev1.Container{{}}, main: []corev1.Container{limited("1Mi")}, want: "0"},
		"a large init container":    {init: []corev1.Container{limited("8Mi")}, main: []corev1.Container{limited("1Mi")}, want: "8Mi"},
		"a sidecar":                 {init: []corev1.Container{sidecar}, main: []corev1.Container{limited("1Mi")}, want: "5Mi"},
		"the pod as a whole":        {main: []corev1.Container{{}}, whole: &corev1.ResourceRequirements{Limits: amounts("", "7Mi")}, want: "7Mi"},
		"the pod as a whole, and a container too": {main: []corev1.Container{limited("1Mi")}, whole: &corev1.ResourceRequirements{Limits: amounts("", "7Mi")}, want: "7Mi"},
		"the pod as a whole, of something else":   {main: []corev1.Container{{}}, whole: &corev1.ResourceRequirements{Limits: amounts("1", "")}, want: "0"},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: c.init, Containers: c.main, Resources: c.whole}}
		got, bounded := Limit(p, corev1.ResourceMemory)
		if got.Cmp(resource.MustParse(c.want)) != 0 || bounded != (c.want != "0") {
			t.Errorf("%s: %s, bounded %t; want %s", name, got.String(), bounded, c.want)
		}
	}
}
