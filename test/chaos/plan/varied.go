package plan

import (
	"cmp"
	"slices"
	"time"
)

// What users do to DaemonSetVariants, and to what these go by.
const (
	MakeVariant   Op = "make variant"
	EditVariant   Op = "edit variant"
	SpoilVariant  Op = "edit variant to one that cannot be had"
	RefuseVariant Op = "edit variant to one whose pod the API refuses"
	ClashVariant  Op = "edit variant to one in conflict"
	DeleteVariant Op = "delete variant"
	ClassNode     Op = "give node another class"
)

// FillDisks has some nodes pull no image that takes its time, until users mend them.
const FillDisks Op = "disks of nodes are full"

// How nodes come to start: some leave, and come back, on a process when their server has been killed.
const (
	LeaveTogether  Op = "nodes leave together"
	ReturnTogether Op = "nodes come back together"
	BringBack      Op = "server is killed, and the nodes that left are back"
)

// varying is what users do to variants in rounds that have them.
var varying = []chance{
	{MakeVariant, 4}, {EditVariant, 8}, {SpoilVariant, 3}, {RefuseVariant, 2}, {ClashVariant, 3}, {DeleteVariant, 3},
	{ClassNode, 6},
}

// StartupLoop is the loop that opens nodes which start, where there is a NodeStartup.
const StartupLoop = "nodestartup"

// startupFaults are those of that loop.
var startupFaults = []chance{
	{StopLoop, 3}, {KillLoop, 3}, {PauseLoop, 3}, {DropWatches, 2}, {Relist, 2}, {SlowWatches, 3}, {FlakyWrites, 4},
}

// Varying says in which rounds there are DaemonSetVariants.
type Varying string

// The choices: by the seed in half of the rounds, in all, in none.
const (
	Sometimes Varying = "mixed"
	Always    Varying = "all"
	Never     Varying = "none"
)

// Vary adds DaemonSetVariants to a plan, and ramps, fetching and NodeStartups to some. It is made last, so that the
// round of a seed without them is as it was before there were any.
func (p *Plan) Vary(dice Dice, length time.Duration, in Varying) {
	half := dice.IntN(2) == 0
	if in == Never || in == Sometimes && !half {
		return
	}
	p.Varied = true
	p.Ramps = p.Policies && dice.IntN(3) == 0
	p.Startup = true
	if p.Policies {
		length *= policedLength
	}
	var first []Step
	for i := range 1 + dice.IntN(3) {
		first = append(first, Step{Op: MakeVariant, Pick: i, Other: dice.IntN(1 << 20), Third: dice.IntN(1 << 20)})
	}
	if p.Policies {
		p.First = append(first, p.First...)
	} else {
		p.Steps = append(first, p.Steps...)
	}
	for range 8 + dice.IntN(10) {
		p.Steps = append(p.Steps, step(dice, varying, length))
	}
	p.Rigid = dice.IntN(3) == 0
	p.start(dice, length)
	p.Fetches = p.Policies && dice.IntN(2) == 0
	if p.Fetches {
		p.ByPods = p.Apart || p.Kind == Parts && dice.IntN(2) == 0
		p.Steps = append(p.Steps, Step{At: part(dice, 0, length/2), Op: FillDisks, Pick: 1,
			Other: dice.IntN(1<<20) & dice.IntN(1<<20)})
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
}

// start has nodes leave together and come back. In parts the loop that opens them is disturbed too.
func (p *Plan) start(dice Dice, length time.Duration) {
	p.Steps = append(p.Steps, Step{At: part(dice, 0, length/3), Op: LeaveTogether, Pick: dice.IntN(1 << 20)})
	back := part(dice, length/3, length*2/3)
	if p.Kind == Process {
		p.Steps = append(p.Steps, Step{At: back, Op: BringBack})
		return
	}
	p.Steps = append(p.Steps, Step{At: back, Op: ReturnTogether})
	for range 1 + dice.IntN(4) {
		s := step(dice, startupFaults, length)
		s.Loop = StartupLoop
		p.Steps = append(p.Steps, s.lasting(dice, length))
	}
}

// Calm and Waits are the numbers of a policy with a canary and zones. All their nodes are waited for to fetch images,
// for longer than they need.
const (
	Calm  = 20
	Waits = 592
)

// quick is the number of a strategy that changes several nodes at a time, slow that of an image that takes its time.
const (
	quick = 11
	slow  = 2
)

// Last are the steps of a round whose nodes fetch images when all faults are over: policies wait for that, and later
// each DaemonSet gets another template. In the midst of faults few templates get through a step.
func (p *Plan) Last() (rules, templates []Step) {
	if !p.Fetches {
		return nil, nil
	}
	rules = []Step{{Op: MakePolicy, Other: Calm, Third: Waits}}
	for i := range Sets {
		rules = append(rules, Step{Op: EditPolicy, Pick: i, Other: Calm, Third: Waits},
			Step{Op: EditStrategy, Pick: i, Other: quick})
		templates = append(templates, Step{Op: EditTemplate, Pick: i, Other: slow})
	}
	return rules, templates
}
