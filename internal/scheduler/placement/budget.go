package placement

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/internal/fit"
)

// Budget is a PodDisruptionBudget: how many of the pods it selects may be removed now.
type Budget struct {
	Namespace string
	Selector  labels.Selector
	Allowed   int
	// Disrupted are the names of pods whose removal is counted already.
	Disrupted map[string]bool
}

// Budgets are all disruption budgets. Preemption breaks one only when nothing else makes room.
type Budgets []Budget

// split divides pods, given most important first, into those whose removal would break a budget and the others, keeping
// the order. Each pod that may be removed uses its budgets up.
func (b Budgets) split(pods []*fit.Pod) (protected, free []*fit.Pod) {
	left := make([]int, len(b))
	for i := range b {
		left[i] = b[i].Allowed
	}
	for _, pod := range pods {
		broken := false
		for i := range b {
			if !b[i].covers(pod) {
				continue
			}
			left[i]--
			if left[i] < 0 {
				broken = true
			}
		}
		if broken {
			protected = append(protected, pod)
		} else {
			free = append(free, pod)
		}
	}
	return protected, free
}

func (b *Budget) covers(pod *fit.Pod) bool {
	return b.Namespace == pod.Namespace && len(pod.Labels) > 0 && !b.Selector.Empty() &&
		!b.Disrupted[pod.Name] && b.Selector.Matches(labels.Set(pod.Labels))
}
