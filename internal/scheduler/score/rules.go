package score

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/fit/podaffinity"
	"github.com/everynode/everynode/internal/fit/toleration"
)

// taints prefers the node with the fewest advisory taints that the pod does not tolerate.
func taints(pod *fit.Pod, nodes []*fit.Node, _ *fit.Cluster) []int64 {
	var untolerated []int64
	for i, node := range nodes {
		for t := range node.Taints {
			taint := &node.Taints[t]
			if taint.Effect != corev1.TaintEffectPreferNoSchedule || toleration.Covered(taint, pod.Object.Spec.Tolerations) {
				continue
			}
			if untolerated == nil {
				untolerated = make([]int64, len(nodes))
			}
			untolerated[i]++
		}
	}
	if untolerated == nil {
		return nil
	}
	return normalize(untolerated, true)
}

// nodeAffinity prefers the node that matches most of the pod's preferred node affinity, by weight.
func nodeAffinity(pod *fit.Pod, nodes []*fit.Node, _ *fit.Cluster) []int64 {
	affinity := pod.Object.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil {
		return nil
	}
	preferred := affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if len(preferred) == 0 {
		return nil
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(preferred)
	if err != nil {
		// The API server refuses such terms; a preference that cannot be read prefers nothing.
		return nil
	}
	scores := make([]int64, len(nodes))
	var shown corev1.Node
	for i, node := range nodes {
		shown.Name, shown.Labels = node.Name, node.Labels
		scores[i] = terms.Score(&shown)
	}
	return normalize(scores, false)
}

// evenSpread prefers the node whose part of the cluster is the emptiest, by the pod's advisory spread constraints.
func evenSpread(pod *fit.Pod, nodes []*fit.Node, all *fit.Cluster) []int64 {
	crowd := all.Crowd(pod, nodes)
	if crowd == nil {
		return nil
	}
	return normalize(crowd, true)
}

// podAffinity adds, for every node, the weights of the pod's preferences: once for each pod in the node's part that a
// preferred affinity matches, and taken away for each that a preferred anti-affinity matches.
func podAffinity(pod *fit.Pod, nodes []*fit.Node, all *fit.Cluster) []int64 {
	affinity := pod.Object.Spec.Affinity
	if affinity == nil {
		return nil
	}
	scores := make([]int64, len(nodes))
	found := false
	if affinity.PodAffinity != nil {
		found = weigh(scores, affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, 1, pod, nodes, all)
	}
	if affinity.PodAntiAffinity != nil {
		avoided := affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		found = weigh(scores, avoided, -1, pod, nodes, all) || found
	}
	if !found {
		return nil
	}
	var lowest int64
	for _, score := range scores {
		lowest = min(lowest, score)
	}
	for i := range scores {
		scores[i] -= lowest
	}
	return normalize(scores, false)
}

func weigh(scores []int64, preferred []corev1.WeightedPodAffinityTerm, sign int64, pod *fit.Pod, nodes []*fit.Node,
	all *fit.Cluster) (found bool) {
	for i := range preferred {
		api := &preferred[i].PodAffinityTerm
		term, ok := podaffinity.Parse(api, pod.Namespace)
		if !ok {
			continue // the API server refuses such terms
		}
		group := all.Group(term)
		for n, node := range nodes {
			if count, _ := group.In(node, api.TopologyKey); count > 0 {
				scores[n] += sign * int64(preferred[i].Weight) * int64(count)
				found = true
			}
		}
	}
	return found
}

// siblings prefers the node that runs the fewest pods of the same controller, so that the pods of a ReplicaSet do not
// end up on one node.
func siblings(pod *fit.Pod, nodes []*fit.Node, _ *fit.Cluster) []int64 {
	if pod.Controller == "" {
		return nil
	}
	scores := make([]int64, len(nodes))
	for i, node := range nodes {
		scores[i] = int64(node.Controlled[pod.Controller])
	}
	return normalize(scores, true)
}

// leastAllocated prefers the node of whose CPU and memory the smallest part would be requested.
func leastAllocated(pod *fit.Pod, nodes []*fit.Node, _ *fit.Cluster) []int64 {
	scores := make([]int64, len(nodes))
	for i, node := range nodes {
		cpu := free(node.Allocatable.MilliCPU, node.Comparable.MilliCPU+pod.Comparable.MilliCPU)
		memory := free(node.Allocatable.Memory, node.Comparable.Memory+pod.Comparable.Memory)
		scores[i] = (cpu + memory) / 2
	}
	return scores
}

// free is the part of a resource that would stay free, 0 to MaxScore.
func free(allocatable, requested int64) int64 {
	if allocatable <= 0 || requested >= allocatable {
		return 0
	}
	return (allocatable - requested) * MaxScore / allocatable
}
