package eviction

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// TestPreempt: of pods on a node with 10 CPUs, those end that must, for a pod that wants some.
func TestPreempt(t *testing.T) {
	const critical = criticalPriority
	pod := func(name, cpu string, priority int32) Usage {
		return Usage{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Priority: ptr.To(priority),
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}}}}
	}
	guaranteed := func(u Usage) Usage {
		r := &u.Pod.Spec.Containers[0].Resources
		r.Requests[corev1.ResourceMemory] = resource.MustParse("1")
		r.Limits = r.Requests
		return u
	}
	static := func(u Usage) Usage {
		u.Static = true
		return u
	}
	cpus := func(list ...*corev1.Pod) (sum int64) {
		for _, p := range list {
			q := podfacts.Requests(p)[corev1.ResourceCPU]
			sum += q.Value()
		}
		return sum
	}
	for name, tc := range map[string]struct {
		pod    Usage
		others []Usage
		want   []string
	}{
		"an ordinary pod":                       {pod("p", "1", 1e9), []Usage{pod("a", "10", 0)}, nil},
		"a critical one":                        {pod("p", "1", critical), []Usage{pod("a", "10", 0)}, []string{"a"}},
		"a static one":                          {static(pod("p", "1", 0)), []Usage{pod("a", "10", 0)}, []string{"a"}},
		"room without the more important":       {pod("p", "4", critical), []Usage{pod("a", "5", 7), pod("b", "5", 3)}, []string{"b"}},
		"no more than needed":                   {pod("p", "4", critical), []Usage{pod("a", "1", 0), pod("b", "4", 0), pod("c", "5", 9)}, []string{"b"}},
		"those that are protected come last":    {pod("p", "5", critical), []Usage{guaranteed(pod("a", "5", 0)), pod("b", "5", 0)}, []string{"b"}},
		"of critical ones only the less so":     {pod("p", "5", critical+1000), []Usage{pod("a", "5", critical), pod("b", "5", critical+1000)}, []string{"a"}},
		"no use":                                {pod("p", "6", critical), []Usage{pod("a", "5", 0), pod("b", "5", critical)}, nil},
		"too large for the node":                {pod("p", "11", critical), []Usage{pod("a", "5", 0)}, nil},
		"static pods stay":                      {pod("p", "5", critical), []Usage{static(pod("a", "10", 0))}, nil},
		"an equally critical one stays":         {static(pod("p", "5", critical)), []Usage{pod("a", "10", critical)}, nil},
		"those that have what is missing alone": {pod("p", "2", critical), []Usage{pod("a", "0", 0), pod("b", "10", 5)}, []string{"b"}},
	} {
		got := Preempt(tc.pod, tc.others, func(left []*corev1.Pod) bool { return cpus(append(left, tc.pod.Pod)...) <= 10 })
		var names []string
		for _, p := range got {
			names = append(names, p.Name)
		}
		if !slices.Equal(names, tc.want) {
			t.Errorf("%s: %v end, want %v", name, names, tc.want)
		}
	}
}
