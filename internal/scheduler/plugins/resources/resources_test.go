package resources

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/scheduler/cache"
)

func TestFilter(t *testing.T) {
	gpu := func(n int64) map[corev1.ResourceName]int64 {
		return map[corev1.ResourceName]int64{"example.com/gpu": n}
	}
	offers := cache.Resources{MilliCPU: 1000, Memory: 1000, EphemeralStorage: 1000, Scalar: gpu(2)}
	used := cache.Resources{MilliCPU: 600, Memory: 600, EphemeralStorage: 600, Scalar: gpu(1)}
	tests := []struct {
		name     string
		request  cache.Resources
		pods     int
		allowed  int
		reasons  []string
		hopeless bool
	}{
		{"fits exactly", cache.Resources{MilliCPU: 400, Memory: 400, EphemeralStorage: 400, Scalar: gpu(1)}, 1, 2, nil, false},
		{"cpu", cache.Resources{MilliCPU: 401}, 1, 9, []string{"Insufficient cpu"}, false},
		{"memory, more than the node has", cache.Resources{Memory: 1001}, 1, 9, []string{"Insufficient memory"}, true},
		{"storage", cache.Resources{EphemeralStorage: 401}, 1, 9, []string{"Insufficient ephemeral-storage"}, false},
		{"extended", cache.Resources{Scalar: gpu(2)}, 1, 9, []string{"Insufficient example.com/gpu"}, false},
		{"extended that the node does not have", cache.Resources{Scalar: map[corev1.ResourceName]int64{"example.com/tpu": 1}}, 1, 9,
			[]string{"Insufficient example.com/tpu"}, true},
		{"all that lack are named", cache.Resources{MilliCPU: 500, Memory: 500}, 3, 3,
			[]string{"Too many pods", "Insufficient cpu", "Insufficient memory"}, false},
		{"no request, full node", cache.Resources{}, 3, 3, []string{"Too many pods"}, false},
		{"no request", cache.Resources{}, 2, 3, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			node := &cache.Node{Allocatable: offers, Requested: used, AllowedPods: test.allowed, Pods: map[types.UID]*cache.Pod{}}
			for i := range test.pods {
				node.Pods[types.UID(rune('a'+i))] = nil
			}
			verdict := Filter.Prepare(&cache.Pod{Requests: test.request}, nil)(node)
			if !slices.Equal(verdict.Reasons, test.reasons) || verdict.Hopeless != test.hopeless {
				t.Errorf("verdict is %+v, want reasons %v, hopeless %v", verdict, test.reasons, test.hopeless)
			}
		})
	}
}

func TestScorerPrefersTheEmptierNode(t *testing.T) {
	node := func(cpu, memory int64) *cache.Node {
		return &cache.Node{Allocatable: cache.Resources{MilliCPU: 1000, Memory: 1000}, Comparable: cache.Resources{MilliCPU: cpu, Memory: memory}}
	}
	pod := &cache.Pod{Comparable: cache.Resources{MilliCPU: 100, Memory: 100}}
	got := Scorer.Prepare(pod, []*cache.Node{node(0, 0), node(900, 0), node(400, 400), node(2000, 2000)}, nil)
	if want := []int64{90, 45, 50, 0}; !slices.Equal(got, want) {
		t.Errorf("scores are %v, want %v", got, want)
	}
}
