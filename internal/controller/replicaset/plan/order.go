package plan

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/objects/pod"
)

// candidate is what the order of deletion depends on.
type candidate struct {
	pod             *corev1.Pod
	bound           bool
	ready           bool
	available       bool
	phase           int
	cost            int32
	neighbours      int // active pods of the related sets on its node
	readyFor, lived int // ages, see age
	restarts        [2]int32
}

// cheapestFirst orders pods by how little is lost with them: without a node before
// with one, pending before running, not ready before ready before available, low
// deletion cost before high, crowded on a node before alone, ready for a short time
// before long, often restarted before seldom, young before old. Ages count by the power of two,
// so that of pods of about the same age not always the youngest goes.
func cheapestFirst(in Input, pods []*corev1.Pod) []*corev1.Pod {
	crowd := map[string]int{}
	for _, p := range active(in.Related) {
		if pod.IsBound(p) {
			crowd[p.Spec.NodeName]++
		}
	}
	candidates := make([]candidate, 0, len(pods))
	for _, p := range pods {
		since, ready := pod.ReadySince(p)
		candidates = append(candidates, candidate{
			pod: p, bound: pod.IsBound(p), ready: ready,
			available: pod.IsAvailable(p, in.Set.Spec.MinReadySeconds, in.Now), phase: slices.Index(phases, p.Status.Phase),
			cost: cost(p), neighbours: crowd[p.Spec.NodeName],
			readyFor: age(since, in.Now), lived: age(p.CreationTimestamp.Time, in.Now), restarts: restarts(p),
		})
	}
	slices.SortFunc(candidates, compare)
	out := make([]*corev1.Pod, 0, len(pods))
	for _, c := range candidates {
		out = append(out, c.pod)
	}
	return out
}

// phases are in the order of deletion; a phase that is not yet reported comes first.
var phases = []corev1.PodPhase{corev1.PodPending, corev1.PodUnknown, corev1.PodRunning}

func compare(a, b candidate) int {
	return cmp.Or(
		falseFirst(a.bound, b.bound),
		cmp.Compare(a.phase, b.phase),
		falseFirst(a.ready, b.ready),
		falseFirst(a.available, b.available),
		cmp.Compare(a.cost, b.cost),
		cmp.Compare(b.neighbours, a.neighbours),
		cmp.Compare(a.readyFor, b.readyFor),
		cmp.Compare(b.restarts[0], a.restarts[0]),
		cmp.Compare(b.restarts[1], a.restarts[1]),
		cmp.Compare(a.lived, b.lived),
		// Any order that is not by age, and the same each time.
		cmp.Compare(a.pod.UID, b.pod.UID), cmp.Compare(a.pod.Name, b.pod.Name),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// cost is what the pod's annotation says that its deletion costs, 0 if it says
// nothing that can be read.
func cost(p *corev1.Pod) int32 {
	text := p.Annotations[corev1.PodDeletionCost]
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || text[0] == '+' || len(text) > 1 && text[0] == '0' {
		return 0
	}
	return int32(n)
}

// age is the power of two below the time passed since then in nanoseconds, -1 for
// nothing. An unknown time counts as the youngest.
func age(since, now time.Time) int {
	d := now.Sub(since)
	if since.IsZero() || d <= 0 {
		return -1
	}
	return int(math.Log2(float64(d)))
}

// restarts are the most restarts of a container and of a sidecar of the pod.
func restarts(p *corev1.Pod) (most [2]int32) {
	for _, c := range p.Status.ContainerStatuses {
		most[0] = max(most[0], c.RestartCount)
	}
	sidecars := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		sidecars[c.Name] = pod.IsSidecar(&c)
	}
	for _, c := range p.Status.InitContainerStatuses {
		if sidecars[c.Name] {
			most[1] = max(most[1], c.RestartCount)
		}
	}
	return most
}
