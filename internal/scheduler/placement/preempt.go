package placement

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/fit"
)

const (
	notHelpful = "Preemption is not helpful for scheduling"
	noVictims  = "No preemption victims found for incoming pod"

	// minCandidates nodes, or a tenth of all if that is more, are compared; finding the very best of thousands is not
	// worth the time.
	minCandidates = 100
)

// Preemption is what is done so that a pod fits that did not: the victims leave the node, and the pod waits for it.
type Preemption struct {
	// Node is "" if preemption does not help; Message then says why.
	Node    string
	Victims []*fit.Pod
	// Displaced are the less important pods nominated to the node, which lose that.
	Displaced []*fit.Pod
	Message   string
}

// Preempt looks for the pods whose removal lets pod fit, given why it does not fit as things are. Victims have a lower
// priority than pod, as few and as unimportant as possible.
func (p *Placer) Preempt(pod *fit.Pod, diagnosis *Diagnosis, view View) Preemption {
	if policy := pod.Object.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return Preemption{Message: "preemption: not eligible due to preemptionPolicy=Never."}
	}
	if p.Awaits(pod, view) {
		return Preemption{Message: "preemption: not eligible due to a terminating pod on the nominated node."}
	}
	if diagnosis.Total == 0 {
		return Preemption{}
	}
	question := view.Cluster.Ask(pod)
	enough := max(minCandidates, diagnosis.Total/10)
	var candidates []candidate
	counts := map[string]int{}
	if diagnosis.barren > 0 {
		counts[noVictims] = diagnosis.barren
	}
	for i := range diagnosis.crowded {
		found, reasons := victims(pod, diagnosis.crowded[(p.cursor+i)%len(diagnosis.crowded)], question, view)
		for _, reason := range reasons {
			counts[reason]++
		}
		if reasons == nil {
			if candidates = append(candidates, found); len(candidates) == enough {
				break
			}
		}
	}
	if len(candidates) == 0 {
		if rest := diagnosis.Total - len(diagnosis.crowded) - diagnosis.barren; rest > 0 {
			counts[notHelpful] += rest
		}
		return Preemption{Message: "preemption: " + aggregate(diagnosis.Total, counts, "", "")}
	}
	best := slices.MinFunc(candidates, compareCandidates)
	return Preemption{Node: best.node, Victims: best.victims, Displaced: view.Nominated.lesser(best.node, pod)}
}

// Awaits reports whether the pod has preempted already and a victim is still leaving: then it must wait, not take
// another one. A nominated node that became hopeless is given up.
func (p *Placer) Awaits(pod *fit.Pod, view View) bool {
	name := view.Nominated.Node(pod.UID)
	node := view.Cluster.Node(name)
	if name == "" || node == nil {
		return false
	}
	reasons := view.Cluster.Ask(pod).First(node, fit.Trial{})
	if len(reasons) > 0 && failureOf(reasons).hopeless {
		return false
	}
	for _, other := range node.Pods {
		if view.Nominated.awaits(pod.UID, other) || other.Priority < pod.Priority && other.Terminating {
			return true
		}
	}
	return false
}

type candidate struct {
	node    string
	victims []*fit.Pod // most important first
	// violations counts the victims whose removal breaks a disruption budget.
	violations int
}

// victims chooses the victims on one node, or returns the reasons why removing pods there does not help. It takes away
// all lesser pods and puts back, the most important first, those beside which the pod still fits; those protected by a
// disruption budget are put back before the others.
func victims(pod *fit.Pod, node *fit.Node, question *fit.Question, view View) (candidate, []string) {
	var lesser []*fit.Pod
	for _, other := range node.Pods {
		if other.Priority < pod.Priority {
			lesser = append(lesser, other)
		}
	}
	if len(lesser) == 0 {
		return candidate{}, []string{noVictims}
	}
	if failed := check(pod, node, lesser, question, view); len(failed) > 0 {
		reasons := make([]string, len(failed))
		for i := range failed {
			reasons[i] = failed[i].Text
		}
		return candidate{}, reasons
	}
	slices.SortFunc(lesser, compareImportance)
	protected, free := view.Budgets.split(lesser)
	found := candidate{node: node.Name}
	removed := slices.Concat(protected, free)
	putBack := func(pods []*fit.Pod) (gone int) {
		for _, other := range pods {
			trial := slices.DeleteFunc(slices.Clone(removed), func(p *fit.Pod) bool { return p == other })
			if len(check(pod, node, trial, question, view)) == 0 {
				removed = trial
				continue
			}
			gone++
		}
		return gone
	}
	found.violations = putBack(protected)
	putBack(free)
	slices.SortFunc(removed, compareImportance)
	found.victims = removed
	return found, nil
}

// compareImportance orders by priority, highest first, then by running time, longest first.
func compareImportance(a, b *fit.Pod) int {
	if order := cmp.Compare(b.Priority, a.Priority); order != 0 {
		return order
	}
	if order := started(a).Compare(started(b)); order != 0 {
		return order
	}
	return strings.Compare(string(a.UID), string(b.UID))
}

// started is when the pod began to run. One that has not is younger than all that have.
func started(pod *fit.Pod) time.Time {
	if pod.Started.IsZero() {
		return time.Unix(1<<40, 0)
	}
	return pod.Started
}

// compareCandidates puts first the node where preemption does the least harm: fewest broken budgets, then the lowest
// priority of its most important victim, then the smallest sum of priorities, then the fewest victims, then the most
// important victim that has run for the shortest time.
func compareCandidates(a, b candidate) int {
	return cmp.Or(
		cmp.Compare(a.violations, b.violations),
		cmp.Compare(a.victims[0].Priority, b.victims[0].Priority),
		cmp.Compare(a.sum(), b.sum()),
		cmp.Compare(len(a.victims), len(b.victims)),
		started(b.victims[0]).Compare(started(a.victims[0])),
		strings.Compare(a.node, b.node),
	)
}

// sum adds the priorities, shifted to be positive so that more victims never count as less harm.
func (c candidate) sum() int64 {
	var sum int64
	for _, victim := range c.victims {
		sum += int64(victim.Priority) + 1<<31
	}
	return sum
}
