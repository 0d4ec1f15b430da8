package podaffinity

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/scheduler/cache"
	"github.com/everynode/everynode/internal/scheduler/plugins"
)

// score adds, for every node, the weights of the pod's preferences: once for each pod in the node's part that a preferred
// affinity matches, and taken away for each that a preferred anti-affinity matches.
func score(pod *cache.Pod, nodes []*cache.Node, all *cache.Cache) []int64 {
	affinity := pod.Object.Spec.Affinity
	if affinity == nil {
		return nil
	}
	weights := map[part]int64{}
	if affinity.PodAffinity != nil {
		weigh(weights, affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1, pod.Object, all)
	}
	if affinity.PodAntiAffinity != nil {
		weigh(weights, affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, -1, pod.Object, all)
	}
	if len(weights) == 0 {
		return nil
	}
	scores := make([]int64, len(nodes))
	var lowest int64
	for i, node := range nodes {
		for p, weight := range weights {
			if value, ok := node.Object.Labels[p.key]; ok && value == p.value {
				scores[i] += weight
			}
		}
		lowest = min(lowest, scores[i])
	}
	for i := range scores {
		scores[i] -= lowest
	}
	return plugins.Normalize(scores, false)
}

func weigh(weights map[part]int64, preferred []corev1.WeightedPodAffinityTerm, sign int64, owner *corev1.Pod, all *cache.Cache) {
	for i := range preferred {
		t, ok := parse(&preferred[i].PodAffinityTerm, owner)
		if !ok {
			continue // the API server refuses such terms
		}
		for _, node := range all.Nodes() {
			value, ok := node.Object.Labels[t.key]
			if !ok {
				continue
			}
			for _, other := range node.Pods {
				if t.matches(other.Object, all) {
					weights[part{t.key, value}] += sign * int64(preferred[i].Weight)
				}
			}
		}
	}
}
