package cri

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A container gets the huge pages that it asks for, and none of another size.
func TestHugePages(t *testing.T) {
	c := &corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"hugepages-2Mi": resource.MustParse("6Mi"), corev1.ResourceMemory: resource.MustParse("10Mi")}}}
	got := map[string]uint64{}
	for _, l := range hugePages(c, []string{"2MB", "1GB"}) {
		got[l.PageSize] = l.Limit
	}
	if want := map[string]uint64{"2MB": 6 << 20, "1GB": 0}; !maps.Equal(got, want) {
		t.Errorf("the container's limits are %v, want %v", got, want)
	}
	if len(hugePages(c, nil)) != 0 {
		t.Error("limits are sent where the machine cannot keep them")
	}
}
