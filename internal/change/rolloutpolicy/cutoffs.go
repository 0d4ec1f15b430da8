package rolloutpolicy

import (
	"strings"

	"github.com/everynode/everynode/api/v1alpha1"
)

// MaxCutoffs is how many a rollout's status may name.
const MaxCutoffs = 1000

// cutoffs are those of a fleet, once somebody has asked, until a node comes into a step by number, or leaves one.
type cutoffs struct {
	upTo Step
	are  *v1alpha1.Cutoffs
}

// Cutoffs name, of each step up to the given one that takes nodes by number, the last node that it takes, for each
// value of the label that it spreads over. So anybody can tell a node's step who knows its labels, and no other node.
// What is returned must not be changed.
func (f *Fleet) Cutoffs(upTo Step, generation int64) *v1alpha1.Cutoffs {
	if known := f.cutoffs.are; known != nil && f.cutoffs.upTo == upTo && known.PolicyGeneration == generation {
		return known
	}
	out := &v1alpha1.Cutoffs{PolicyGeneration: generation}
	for _, l := range f.levels {
		if l.sieve == nil || l.step.Compare(upTo) > 0 {
			continue
		}
		for _, p := range l.sieve.pools {
			last, some := p.in.Max()
			if some {
				out.Steps = append(out.Steps, v1alpha1.StepCutoff{
					Step: f.policy.StepName(l.step), Value: p.value, Last: last.member.name,
				})
			}
		}
	}
	if len(out.Steps) > MaxCutoffs {
		out.Steps, out.Incomplete = nil, true
	}
	f.cutoffs = cutoffs{upTo, out}
	return out
}

// Covers reports whether every node is in its step by what has been written that is in it by the cutoffs of now. Where
// there are none now nothing need be written.
func Covers(written, now *v1alpha1.Cutoffs) bool {
	if now == nil || written == now {
		return true
	}
	if written == nil || written.PolicyGeneration != now.PolicyGeneration {
		return false
	}
	for i, c := range now.Steps {
		if i < len(written.Steps) && written.Steps[i] == c {
			continue
		}
		wave, _, _ := strings.Cut(c.Step, "/")
		s := &sieve{wave: &Wave{Name: wave}}
		if !s.takes(written.Steps, c.Step, c.Value, c.Last) {
			return false
		}
	}
	return true
}

// StepBy is the step of a node by its labels, where cutoffs name who is in the steps that take nodes by number. It is
// exact up to the step that the cutoffs go up to, and behind that for a node of a later one.
func (p *Policy) StepBy(node string, labels map[string]string, cutoffs []v1alpha1.StepCutoff) Step {
	levels := p.levels()
	for i := range levels {
		l := &levels[i]
		if p.offers(l, labels) && (l.sieve == nil ||
			l.sieve.takes(cutoffs, p.StepName(l.step), labels[l.sieve.wave.SpreadBy], node)) {
			return p.stepAt(l, labels)
		}
	}
	return Step{Wave: len(p.Waves)}
}

// ByNumber reports whether a step up to the given one takes nodes by number, so that labels alone do not tell who is in
// it.
func (p *Policy) ByNumber(upTo Step) bool {
	for _, l := range p.levels() {
		if l.sieve != nil && l.step.Compare(upTo) <= 0 {
			return true
		}
	}
	return false
}

// TakesAll reports whether each node is in a step up to the given one, whatever its name and labels are.
func (p *Policy) TakesAll(upTo Step) bool {
	for _, l := range p.levels() {
		w := &p.Waves[l.step.Wave]
		begun := w.Each == "" && l.step.Compare(upTo) <= 0 || l.step.Wave < upTo.Wave
		if begun && l.sieve == nil && (w.Nodes == nil || w.Nodes.Empty()) {
			return true
		}
	}
	return false
}

// takes reports whether a node is in a step by the cutoff for a value.
func (s *sieve) takes(cutoffs []v1alpha1.StepCutoff, step, value, node string) bool {
	for _, c := range cutoffs {
		if c.Step == step && c.Value == value {
			return !before(s.rankedName(c.Last), s.rankedName(node))
		}
	}
	return false
}

func (s *sieve) rankedName(name string) ranked { return ranked{s.rank(name), &member{name: name}} }
