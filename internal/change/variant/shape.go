package variant

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/objects/pod"
)

// shape names what a merge changes of a template beside the cpu and memory of containers that can be resized, and
// returns these of the containers of which it changes them.
func shape(before, after *corev1.PodTemplateSpec) (string, Resources, error) {
	var patched Resources
	was := computeOf(&before.Spec)
	for name, is := range computeOf(&after.Spec) {
		had, known := was[name]
		if known && pod.SameCompute(&had, &is) {
			continue
		}
		if patched == nil {
			patched = Resources{}
		}
		patched[name] = is
	}
	without, err := effect(bare(before), bare(after))
	return without, patched, err
}

// resizable are the containers whose cpu and memory can change while they run, by the rules of pods/resize.
func resizable(spec *corev1.PodSpec) (out []*corev1.Container) {
	for i := range spec.Containers {
		out = append(out, &spec.Containers[i])
	}
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; pod.IsSidecar(c) {
			out = append(out, c)
		}
	}
	return out
}

// computeOf is the cpu and memory of containers that can be resized.
func computeOf(spec *corev1.PodSpec) Resources {
	out := Resources{}
	for _, c := range resizable(spec) {
		out[c.Name] = computeIn(&c.Resources)
	}
	return out
}

func computeIn(r *corev1.ResourceRequirements) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: pod.WithCompute(nil, r.Requests), Limits: pod.WithCompute(nil, r.Limits),
	}
}

// bare is the template without them.
func bare(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	out := t.DeepCopy()
	for _, c := range resizable(&out.Spec) {
		c.Resources.Requests = pod.WithCompute(c.Resources.Requests, nil)
		c.Resources.Limits = pod.WithCompute(c.Resources.Limits, nil)
	}
	return out
}

// IsOld reports whether the mark is of a version that did not write what a patch changed.
func (m *Mark) IsOld() bool { return m.Effect != "" && m.Shape == "" && len(m.Patched) == 0 }

// Compute is the cpu and memory of containers, init containers among them, of a pod with the mark that was made of the
// template: a request that nobody says is as its limit, as the API makes it.
func (m *Mark) Compute(of *corev1.PodTemplateSpec) Resources {
	out := Resources{}
	for _, list := range [][]corev1.Container{of.Spec.InitContainers, of.Spec.Containers} {
		for i := range list {
			out[list[i].Name] = computeIn(&list[i].Resources)
		}
	}
	for name, patched := range m.Patched {
		out[name] = patched
	}
	for name, computed := range m.Resources {
		is := out[name]
		computed = computeIn(&computed)
		is.Requests, is.Limits = with(is.Requests, computed.Requests), with(is.Limits, computed.Limits)
		out[name] = is
	}
	for name, is := range out {
		is.Requests = with(is.Limits, is.Requests)
		out[name] = is
	}
	return out
}
