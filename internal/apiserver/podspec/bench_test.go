package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
)

// Defaults run whenever a pod is read from storage, so they must cost next to
// nothing for an object that has them.
func BenchmarkDefaultsOfStoredPod(b *testing.B) {
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/agent:v1"}},
		Volumes: []corev1.Volume{{Name: "v"}}}
	defaults.SetPod(&spec)
	defaults.Set(&spec)
	b.ReportAllocs()
	for b.Loop() {
		defaults.SetPod(&spec)
		defaults.Set(&spec)
	}
}

func BenchmarkValidatePod(b *testing.B) {
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/agent:v1"}},
		Volumes: []corev1.Volume{{Name: "v"}}}
	defaults.SetPod(&spec)
	defaults.Set(&spec)
	b.ReportAllocs()
	for b.Loop() {
		if errs := ValidatePod(&spec, field.NewPath("spec")); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
