package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Defaults run whenever a pod is read from storage, so they must cost next to
// nothing for an object that has them.
func BenchmarkDefaultsOfStoredPod(b *testing.B) {
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/agent:v1"}}, Volumes: []corev1.Volume{{Name: "v"}}}
	SetPodDefaults(&spec)
	SetDefaults(&spec)
	b.ReportAllocs()
	for b.Loop() {
		SetPodDefaults(&spec)
		SetDefaults(&spec)
	}
}

func BenchmarkValidatePod(b *testing.B) {
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/agent:v1"}}, Volumes: []corev1.Volume{{Name: "v"}}}
	SetPodDefaults(&spec)
	SetDefaults(&spec)
	b.ReportAllocs()
	for b.Loop() {
		if errs := ValidatePod(&spec, field.NewPath("spec")); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
