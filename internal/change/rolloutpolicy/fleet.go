package rolloutpolicy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Step is a part of the fleet that is changed together: a wave, the nodes of a
// wave with one value of its label, or a part of a ramp. It is comparable.
type Step struct {
	// Wave is the place of the wave in the policy.
	Wave int
	// Part is the place of the step in a ramp, from 1 on; 0 where there is none.
	Part int
	// Value is the label's value in a wave with each; None is set for the nodes there
	// without the label.
	Value string
	None  bool
}

// Compare orders steps as they follow each other.
func (s Step) Compare(o Step) int {
	if c := cmp.Or(cmp.Compare(s.Wave, o.Wave), cmp.Compare(s.Part, o.Part)); c != 0 {
		return c
	}
	if s.None != o.None {
		if s.None {
			return 1
		}
		return -1
	}
	return cmp.Compare(s.Value, o.Value)
}

const noValue = "(none)"

// nowhere is the step of a node that is being moved.
var nowhere = Step{Wave: -1}

// StepName is the step's name in statuses: the wave's, with the value, or the place in the ramp,
// behind a slash where the wave has several steps.
func (p *Policy) StepName(s Step) string {
	w := &p.Waves[s.Wave]
	switch {
	case s.Part > 0:
		return w.Name + "/" + strconv.Itoa(s.Part)
	case w.Each == "":
		return w.Name
	case s.None:
		return w.Name + "/" + noValue
	}
	return w.Name + "/" + s.Value
}

// StepNamed finds the step of a name; false if the policy has no such wave. The
// step may have no nodes. The bare name of a ramp is what comes before its first step.
func (p *Policy) StepNamed(name string) (Step, bool) {
	wave, value, several := strings.Cut(name, "/")
	i := slices.IndexFunc(p.Waves, func(w Wave) bool { return w.Name == wave })
	if i < 0 {
		return Step{}, false
	}
	switch w := &p.Waves[i]; {
	case w.Ramp != nil && several:
		part, err := strconv.Atoi(value)
		return Step{Wave: i, Part: part}, err == nil && part >= 1 && part <= len(w.Ramp)+1
	case several != (w.Each != ""):
		return Step{}, false
	case value == noValue:
		return Step{Wave: i, None: true}, true
	}
	return Step{Wave: i, Value: value}, true
}

// Fleet keeps the step of each node. Its cost for a change does not grow with the
// number of nodes beyond a logarithm. One owner at a time.
type Fleet struct {
	policy  *Policy
	members map[string]*member
	levels  []level
	steps   map[Step]int
	parts   []int            // by wave: how many steps it makes
	before  map[*member]Step // of those that moved since the last flush
	cutoffs cutoffs
}

// level is a wave, or a step of a ramp: nodes are offered to one after the other.
type level struct {
	step  Step
	sieve *sieve // nil where nodes are taken by their labels alone
}

// member is a node in a fleet.
type member struct {
	name   string
	labels map[string]string
	step   Step
	level  int // that the step is of
	// hash is its rank in the wave that hashedFor names, "" if it has none yet.
	hash      uint64
	hashedFor string
}

// NewFleet returns a fleet without nodes.
func NewFleet(p *Policy) *Fleet {
	f := &Fleet{
		policy:  p,
		members: map[string]*member{},
		steps:   map[Step]int{},
		before:  map[*member]Step{},
		parts:   make([]int, len(p.Waves)),
	}
	f.levels = p.levels()
	return f
}

// levels are those of all waves, one after the other.
func (p *Policy) levels() (out []level) {
	for i := range p.Waves {
		w := &p.Waves[i]
		for n, size := range w.Ramp {
			out = append(out, level{Step{Wave: i, Part: n + 1}, newSieve(&Wave{Name: w.Name, Count: size})})
		}
		last := level{step: Step{Wave: i}}
		switch {
		case w.Ramp != nil:
			last.step.Part = len(w.Ramp) + 1
		case w.Count > 0 || w.Percent > 0:
			last.sieve = newSieve(w)
		}
		out = append(out, last)
	}
	return out
}

// Len is how many nodes there are.
func (f *Fleet) Len() int { return len(f.members) }

// Step returns the node's step.
func (f *Fleet) Step(node string) (Step, bool) {
	if m := f.members[node]; m != nil {
		return m.step, true
	}
	return Step{}, false
}

// Steps lists the steps that have nodes, in their order.
func (f *Fleet) Steps() []Step {
	return slices.SortedFunc(maps.Keys(f.steps), Step.Compare)
}

// TooFine says which wave makes more steps than a rollout can have, and what to do; "" if
// there are not more than MaxSteps.
func (f *Fleet) TooFine() string {
	if len(f.steps) <= MaxSteps {
		return ""
	}
	most := 0
	for i, n := range f.parts {
		if n > f.parts[most] {
			most = i
		}
	}
	w := &f.policy.Waves[most]
	return fmt.Sprintf(
		"the policy makes %d steps of this fleet, and a rollout has %d at most: give wave %s, which makes %d, a label with "+
			"fewer values than %s",
		len(f.steps), MaxSteps, w.Name, f.parts[most], w.Each,
	)
}

// Size is how many nodes the step has.
func (f *Fleet) Size(s Step) int { return f.steps[s] }

// Set adds a node, or changes its labels. It returns the nodes whose step has
// changed, in the order of their names.
func (f *Fleet) Set(node string, labels map[string]string) []string {
	if m := f.members[node]; m != nil {
		if maps.Equal(m.labels, labels) {
			return nil
		}
		f.leave(m, 0)
		m.labels = labels
		f.enter(m, 0)
		return f.flush()
	}
	m := &member{name: node, labels: labels, step: nowhere}
	f.members[node], f.before[m] = m, nowhere
	f.enter(m, 0)
	return f.flush()
}

// Delete takes a node away. It returns the others whose step has changed.
func (f *Fleet) Delete(node string) []string {
	m := f.members[node]
	if m == nil {
		return nil
	}
	delete(f.members, node)
	f.leave(m, 0)
	delete(f.before, m)
	return f.flush()
}

func (f *Fleet) flush() []string {
	var out []string
	for m, before := range f.before {
		if m.step != before {
			out = append(out, m.name)
		}
	}
	clear(f.before)
	slices.Sort(out)
	return out
}

// enter offers the node to the levels from the given one on.
func (f *Fleet) enter(m *member, from int) {
	for i := from; ; i++ {
		l := &f.levels[i]
		if !f.policy.offers(l, m.labels) {
			continue
		}
		if l.sieve != nil {
			f.cutoffs.are = nil
			f.shift(i, l.sieve.add(m))
			if l.sieve.isOut(m) {
				continue
			}
		}
		f.assign(m, i)
		return
	}
}

// offers reports whether a node with these labels is offered to a level.
func (p *Policy) offers(l *level, of map[string]string) bool {
	w := &p.Waves[l.step.Wave]
	return w.Nodes == nil || w.Nodes.Matches(labels.Set(of))
}

// stepAt is the step of a node with these labels which a level takes.
func (p *Policy) stepAt(l *level, of map[string]string) Step {
	s := l.step
	if each := p.Waves[s.Wave].Each; each != "" {
		value, has := of[each]
		s.Value, s.None = value, !has
	}
	return s
}

// leave takes the node out of the levels from the given one on, the last first: what
// a level lets in or out changes only later ones.
func (f *Fleet) leave(m *member, from int) {
	last := m.level
	f.unassign(m)
	for i := last; i >= from; i-- {
		if s := f.levels[i].sieve; s != nil {
			f.cutoffs.are = nil
			f.shift(i, s.remove(m))
		}
	}
}

// shift passes on which others a sieve has let in and out.
func (f *Fleet) shift(level int, moved moves) {
	for _, o := range moved.out {
		f.unassign(o)
		f.enter(o, level+1)
	}
	for _, o := range moved.in {
		f.leave(o, level+1)
		f.assign(o, level)
	}
}

func (f *Fleet) assign(m *member, level int) {
	s := f.policy.stepAt(&f.levels[level], m.labels)
	m.step, m.level = s, level
	f.steps[s]++
	if f.steps[s] == 1 {
		f.parts[s.Wave]++
	}
}

func (f *Fleet) unassign(m *member) {
	if _, known := f.before[m]; !known {
		f.before[m] = m.step
	}
	f.steps[m.step]--
	if f.steps[m.step] == 0 {
		delete(f.steps, m.step)
		f.parts[m.step.Wave]--
	}
	m.step = nowhere
}
