// Package waves says to which steps of a RolloutPolicy a node belongs; pure.
package waves

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Stage is a step of a policy: a wave, and in a wave with each a value. It is comparable.
type Stage struct {
	Wave  int
	Value string
	None  bool
}

// Before reports whether it comes before another.
func (s Stage) Before(o Stage) bool {
	none := map[bool]int{true: 1}
	return cmp.Or(cmp.Compare(s.Wave, o.Wave), cmp.Compare(none[s.None], none[o.None]), cmp.Compare(s.Value, o.Value)) < 0
}

// Name is the name of the step.
func (s Stage) Name(p *v1alpha1.RolloutPolicy) string {
	switch {
	case s.Wave == len(p.Spec.Waves):
		return "rest"
	case p.Spec.Waves[s.Wave].Each == "":
		return p.Spec.Waves[s.Wave].Name
	case s.None:
		return p.Spec.Waves[s.Wave].Name + "/(none)"
	}
	return p.Spec.Waves[s.Wave].Name + "/" + s.Value
}

// IsAmong reports whether the step is one of those of these names: of a wave that grows any of its parts, since no
// label tells in which of them a node is.
func (s Stage) IsAmong(p *v1alpha1.RolloutPolicy, names []string) bool {
	name := s.Name(p)
	grows := s.Wave < len(p.Spec.Waves) && p.Spec.Waves[s.Wave].Ramp != nil
	return slices.ContainsFunc(names, func(is string) bool {
		return is == name || grows && strings.HasPrefix(is, name+"/")
	})
}

// Of are the steps that a node can belong to. A wave that takes a number of nodes
// may take it or not, as far as this judge knows.
func Of(p *v1alpha1.RolloutPolicy, n *corev1.Node) (out []Stage) {
	for i := range p.Spec.Waves {
		w := &p.Spec.Waves[i]
		switch {
		case w.Count != nil || w.Percent != nil:
			out = append(out, Stage{Wave: i})
		case w.Each != "":
			value, has := n.Labels[w.Each]
			return append(out, Stage{Wave: i, Value: value, None: !has})
		case labels.SelectorFromSet(w.Nodes.MatchLabels).Matches(labels.Set(n.Labels)):
			return append(out, Stage{Wave: i})
		}
	}
	return append(out, Stage{Wave: len(p.Spec.Waves)})
}

// Asks reports whether a step of that name needs to be approved.
func Asks(p *v1alpha1.RolloutPolicy, step string) bool {
	wave, _, _ := strings.Cut(step, "/")
	return slices.ContainsFunc(p.Spec.Waves, func(w v1alpha1.Wave) bool {
		return w.Name == wave && w.Approval == v1alpha1.ApprovalManual
	})
}

// CanBeFollowed reports whether a policy can be, as those of rounds are written: a time zone may be none that is known.
func CanBeFollowed(p *v1alpha1.RolloutPolicy) bool {
	return !slices.ContainsFunc(p.Spec.Windows, func(w v1alpha1.Window) bool {
		return w.TimeZone != "" && w.TimeZone != "UTC"
	})
}

// AtOnce is how many steps of the stage's wave can be under way at once, of so many nodes at most: those of a ramp have
// each a limit of their own, and while nothing is stable all have begun.
func (s Stage) AtOnce(p *v1alpha1.RolloutPolicy, rollouts []*v1alpha1.DaemonSetRollout, nodes int) int {
	first := slices.ContainsFunc(rollouts, func(r *v1alpha1.DaemonSetRollout) bool {
		return r.Status.StableRevision == ""
	})
	if p.Spec.Waves[s.Wave].Ramp == nil || !first {
		return 1
	}
	return bits.Len(uint(nodes)) // each has at least twice as many nodes as the one before
}

// Counting is the policy of a list that counts for a DaemonSet: of those that select it the oldest; nil for none.
func Counting(list []*v1alpha1.RolloutPolicy, set *appsv1.DaemonSet) (oldest *v1alpha1.RolloutPolicy) {
	for _, p := range list {
		if s := p.Spec.Selector; s != nil && !labels.SelectorFromSet(s.MatchLabels).Matches(labels.Set(set.Labels)) {
			continue
		}
		if oldest == nil ||
			cmp.Or(p.CreationTimestamp.Compare(oldest.CreationTimestamp.Time), cmp.Compare(p.Name, oldest.Name)) < 0 {
			oldest = p
		}
	}
	return oldest
}
