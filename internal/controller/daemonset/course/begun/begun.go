// Package begun finds how far the steps of a change have begun that began under another policy, or before a restart.
package begun

import (
	"slices"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
)

// Steps are the steps that have begun, the one under way first, and how many nodes steps had.
type Steps struct {
	Names []string
	sizes map[string]int
}

// Of is what a status says of steps.
func Of(s *v1alpha1.DaemonSetRolloutStatus) *v1alpha1.DaemonSetRolloutStatus {
	return &v1alpha1.DaemonSetRolloutStatus{
		Step: s.Step, StepStarted: s.StepStarted, LastDeparture: s.LastDeparture, Soaked: s.Soaked,
		SoakedAfter: s.SoakedAfter, Steps: slices.Clone(s.Steps),
	}
}

// InStatus are those that a status names. Without a policy it is not known which of them come before one that has no
// nodes any more.
func InStatus(p *rolloutpolicy.Policy, s *v1alpha1.DaemonSetRolloutStatus) Steps {
	var all []string
	sizes := map[string]int{}
	for i := range s.Steps {
		all = append(all, s.Steps[i].Name)
		sizes[s.Steps[i].Name] = int(s.Steps[i].Nodes)
	}
	return of(p, s.Step, all, sizes)
}

// InFleet are those that have begun where open is the furthest.
func InFleet(p *rolloutpolicy.Policy, f *rolloutpolicy.Fleet, open rolloutpolicy.Step) Steps {
	var all []string
	sizes := map[string]int{}
	for _, s := range f.Steps() {
		all = append(all, p.StepName(s))
		sizes[p.StepName(s)] = f.Size(s)
	}
	return of(p, p.StepName(open), all, sizes)
}

func of(p *rolloutpolicy.Policy, at string, all []string, sizes map[string]int) Steps {
	if i := slices.Index(all, at); i >= 0 {
		return Steps{append([]string{at}, all[:i]...), sizes}
	}
	return Steps{append([]string{at}, before(p, at, all)...), sizes}
}

// before are those of the steps that come before one that has no nodes any more.
func before(p *rolloutpolicy.Policy, name string, all []string) (out []string) {
	if p == nil {
		return nil
	}
	at, known := p.StepNamed(name)
	for _, other := range all {
		o, also := p.StepNamed(other)
		if known && also && o.Compare(at) < 0 {
			out = append(out, other)
		}
	}
	return out
}

// Furthest is the furthest of a policy's steps that has begun. A step that comes behind one that never began has to
// wait for it.
func (b Steps) Furthest(p *rolloutpolicy.Policy, f *rolloutpolicy.Fleet) rolloutpolicy.Step {
	var open, at rolloutpolicy.Step
	underWay := false // at, and all before it have begun
	if len(b.Names) > 0 {
		at, underWay = p.StepNamed(b.Names[0])
	}
	for _, s := range f.Steps() {
		if !slices.Contains(b.Names, p.StepName(s)) {
			underWay = underWay && s.Compare(at) > 0
			break
		}
		open = s
	}
	if underWay && at.Compare(open) > 0 {
		open = at // it has lost all its nodes, and its approval is still to be given
	}
	if b.IsUnderWay(p.StepName(open)) {
		return b.inRamp(p, f, open)
	}
	return open
}

// Has reports whether a step of a policy has begun, and each wave before it: one that was put in has not. Whether that
// has nodes does not count.
func (b Steps) Has(p *rolloutpolicy.Policy, at rolloutpolicy.Step) bool {
	for i := range at.Wave {
		if !slices.Contains(b.Names, p.StepName(rolloutpolicy.Step{Wave: i})) {
			return false
		}
	}
	return slices.Contains(b.Names, p.StepName(at))
}

// IsUnderWay reports whether the step of that name is the one under way.
func (b Steps) IsUnderWay(name string) bool { return len(b.Names) > 0 && b.Names[0] == name }

// inRamp is the step of a ramp that is under way. If its steps were made larger, it is the first in which all nodes
// have room whose steps had begun: a larger step of the same name has not.
func (b Steps) inRamp(p *rolloutpolicy.Policy, f *rolloutpolicy.Fleet, open rolloutpolicy.Step) rolloutpolicy.Step {
	old, now := 0, 0
	for _, name := range b.Names {
		if s, ok := p.StepNamed(name); ok && s.Wave == open.Wave {
			old += b.sizes[name]
		}
	}
	for s := (rolloutpolicy.Step{Wave: open.Wave, Part: 1}); s.Part < open.Part; s.Part++ {
		now += f.Size(s)
		if now >= old {
			return s
		}
	}
	return open
}
