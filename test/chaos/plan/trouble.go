package plan

import (
	"cmp"
	"slices"
	"time"
)

// Trouble is what a round with policies is about beside all that goes wrong anyway.
type Trouble string

// The kinds of trouble.
const (
	// Usual: nothing more.
	Usual Trouble = "usual"
	// BadStable: the revision that was complete first does not work any more on some nodes, or on all.
	BadStable Trouble = "bad stable revision"
	// DeadNodes: nodes that fall silent stay so until all others have what they are to have.
	DeadNodes Trouble = "dead nodes"
	// LostRevisions: users delete ControllerRevisions.
	LostRevisions Trouble = "lost revisions"
	// LongWords: what refuses pods says 100 kB about it.
	LongWords Trouble = "long words"
	// Content: the ConfigMap and the Secret that templates mount are a part of their revisions, and users edit them.
	Content Trouble = "content"
)

// Troubles are all of them. Those that make more of a fault of parts are nothing more on the real process.
var Troubles = []Trouble{Usual, BadStable, DeadNodes, LostRevisions, LongWords, Content}

// Reads says what of a ConfigMap and a Secret the templates of a round name, and in which ways.
type Reads string

// The ways. Only a pod that names them in whole volumes alone can be given others as it runs.
const (
	ReadsMap    Reads = "a ConfigMap, in each way"
	ReadsSecret Reads = "a Secret, in each way"
	ReadsBoth   Reads = "a ConfigMap and a Secret, in each way"
	InVolumes   Reads = "a ConfigMap and a Secret, in whole volumes"
)

// ReadsAll are all of them, some more often.
var ReadsAll = []Reads{ReadsMap, ReadsSecret, ReadsBoth, ReadsBoth, InVolumes, InVolumes, InVolumes}

// addTrouble adds what makes the trouble, and brings all steps in order again.
func (p *Plan) addTrouble(dice Dice, length time.Duration) {
	add := func(op Op, low, high time.Duration) {
		s := step(dice, []chance{{op, 1}}, high-low)
		s.At += low
		if op == RefuseNode {
			s.Loop, s.For = Loops[0], length/3
		}
		p.Steps = append(p.Steps, s)
	}
	switch p.Trouble {
	case BadStable:
		for i := range p.First {
			if p.First[i].Op == CreateSet {
				p.First[i].Op = CreatePoorSet
			}
		}
		add(PoorNodes, 0, length/3)
		add(CrashTemplate, length/4, length/2)
	case DeadNodes:
		if p.Kind == Parts {
			p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool { return s.Op == WakeNode })
			add(SilenceNode, 0, length/2)
		}
	case LostRevisions:
		for range 4 {
			add(DeleteRevision, 0, length)
		}
	case Content:
		p.Reads = ReadsAll[dice.IntN(len(ReadsAll))]
		quiet := time.Duration(p.Nodes%2) * length / 2
		if p.Reads == InVolumes {
			quiet = length / 2
			p.keepInPlace()
			add(EditContent, 0, length/8)
			add(EditContent, length/8, length/4)
		}
		p.editContent(quiet, p.Reads == InVolumes)
		add(BadContent, length/8, length/3)
		for range 4 {
			add(Approve, 0, length)
		}
	case LongWords:
		if p.Kind == Parts {
			add(RefuseNode, 0, length/2)
		}
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
}

// keepInPlace has no DaemonSet put new pods beside old ones, which cannot be given content as they run.
func (p *Plan) keepInPlace() {
	for i := range p.First {
		if p.First[i].Op == CreateSet {
			p.First[i].Other = p.First[i].Other/8*8 + p.First[i].Other%4
		}
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(s Step) bool { return s.Op == EditStrategy })
}

// editContent has users edit the ConfigMap where they would have edited templates, most of the time. First they leave
// all alone for a while: what does not work takes its time to be seen.
// With only, nobody edits templates.
func (p *Plan) editContent(quiet time.Duration, only bool) {
	edits := []Op{EditTemplate, BreakTemplate, CrashTemplate, StallTemplate, Rollback, EditPlacement}
	ends := []Op{DeletePolicy, SpoilPolicy, DeleteSet, OrphanSet, ReplaceSet, Abort}
	var out []Step
	for _, s := range p.Steps {
		switch edit := slices.Contains(edits, s.Op); {
		case s.At < quiet && (edit && !only || slices.Contains(ends, s.Op)):
			continue
		case edit && s.Other%8 > 5:
			s.Op = BadContent
		case edit && s.Other%8 == 2:
			s.Op = DeleteContent
		case edit && (only || s.Other%8 > 1):
			s.Op = EditContent
		}
		out = append(out, s)
	}
	p.Steps = out
}
