// Package plan makes up, from a seed's dice, what happens in one round of chaos:
// what users do to DaemonSets, pods and nodes, and what goes wrong meanwhile.
//
// The same dice give the same plan. A step names its objects by number; which
// object that is turns out when the step is taken, since nobody knows before
// which pods there will be.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Dice decide. IntN returns a number from 0 to n-1.
type Dice interface{ IntN(n int) int }

// Kind says what kind of control plane the round is played on.
type Kind string

// The two kinds.
const (
	// Parts is an API server with each control loop apart, so that each can be
	// stopped, paused and lied to by itself.
	Parts Kind = "parts"
	// Process is the real program in a process of its own, to be killed.
	Process Kind = "process"
)

// Loops are the control loops that a round on Parts runs and disturbs.
var Loops = []string{
	"daemonset", "scheduler", "simulator", "garbagecollector", "nodelifecycle", "tainteviction", "podgc", "nodeipam",
	"serviceaccount",
}

// Op is what a step does.
type Op string

// What users do.
const (
	CreateSet      Op = "create DaemonSet"
	EditTemplate   Op = "edit template"
	BreakTemplate  Op = "edit template to an image that cannot be pulled"
	EditPlacement  Op = "edit node selector and tolerations"
	EditStrategy   Op = "edit update strategy"
	Rollback       Op = "roll back"
	DeleteSet      Op = "delete DaemonSet"
	OrphanSet      Op = "delete DaemonSet, leave its pods"
	ForegroundSet  Op = "delete DaemonSet after its pods"
	ReplaceSet     Op = "delete DaemonSet and make the same again"
	MakePod        Op = "make a pod by hand"
	MoveLabel      Op = "take a pod out of its DaemonSet by its label"
	MoveLabelBack  Op = "give a pod its label back"
	DeletePod      Op = "delete pod"
	ForceDeletePod Op = "delete pod without grace"
	FailPod        Op = "pod fails"
	SucceedPod     Op = "pod succeeds"
	TaintNode      Op = "taint node"
	UntaintNode    Op = "untaint node"
	CordonNode     Op = "cordon or uncordon node"
	LabelNode      Op = "label or unlabel node"
	RemoveNode     Op = "node leaves"
	AddNode        Op = "node joins"
)

// What goes wrong.
const (
	SilenceNode Op = "node falls silent"
	WakeNode    Op = "node comes back"
	StopLoop    Op = "loop stops"
	KillLoop    Op = "loop is killed, another takes over at once"
	PauseLoop   Op = "loop hangs"
	DropWatches Op = "watches break off"
	Relist      Op = "watches are refused, lists are read again"
	SlowWatches Op = "events come late and in another order"
	FlakyWrites Op = "writes fail, are late, or are done without an answer"
	RefuseNode  Op = "pods for one node are refused"
	KillServer  Op = "server is killed"
	StopServer  Op = "server restarts"
	PauseServer Op = "server hangs"
	// KillController is about a DaemonSet controller in a process of its own.
	KillController Op = "controller is killed, another takes over at once"
)

// serverFaults is how many kinds of faults of a server there are.
const serverFaults = 3

// Step is one thing that happens.
type Step struct {
	// At is when, from the round's start; For is how long, for what has an end.
	At, For time.Duration
	Op      Op
	// Loop is the loop that a fault is about.
	Loop string
	// Pick, Other and Third choose objects and values.
	Pick, Other, Third int
}

// Fault tells what goes wrong from what users do.
func (s Step) Fault() bool {
	switch s.Op {
	case SilenceNode, WakeNode, StopLoop, KillLoop, PauseLoop, DropWatches, Relist, SlowWatches, FlakyWrites, RefuseNode,
		KillServer, StopServer, PauseServer, KillController, BringBack:
		return true
	}
	return false
}

func (s Step) String() string {
	out := fmt.Sprintf("%4d ms  %s", s.At.Milliseconds(), s.Op)
	if s.Loop != "" {
		out += " " + s.Loop
	}
	if s.For > 0 {
		out += fmt.Sprintf(" for %d ms", s.For.Milliseconds())
	}
	return out
}

// Plan is one round.
type Plan struct {
	Kind Kind
	// Nodes is how many there are at the start.
	Nodes int
	// Apart says that the DaemonSet controller is a process beside the server.
	Apart bool
	// Policies says that changes follow RolloutPolicies.
	Policies bool
	// Trouble is what a round with policies is about.
	Trouble Trouble
	// Reads is how templates name what is content, where that is the trouble.
	Reads Reads
	// Varied says that DaemonSetVariants choose the DaemonSets, and that nodes are of several classes and sizes; Ramps
	// that steps of policies may grow, and Startup that nodes which come start by a NodeStartup, while pods wait for them.
	// Rigid says that some nodes cannot resize pods that run, Fetches that nodes may fetch images before their turn, and
	// ByPods that pods have them do that, where no agent can be asked.
	Varied, Ramps, Startup, Rigid, Fetches, ByPods bool
	// First are steps that are taken, and waited for, before anything goes wrong.
	First []Step
	Steps []Step
}

// Runs are the loops that the round runs on Parts.
func (p *Plan) Runs() []string {
	if p.Startup {
		return append(slices.Clone(Loops), StartupLoop)
	}
	return Loops
}

// Sets is how many names of DaemonSets a round uses.
const Sets = 3

// chance is how often an operation comes among those of its sort.
type chance struct {
	op     Op
	weight int
}

var users = []chance{
	{CreateSet, 6}, {EditTemplate, 16}, {BreakTemplate, 3}, {EditPlacement, 5}, {EditStrategy, 8}, {Rollback, 6},
	{DeleteSet, 3}, {OrphanSet, 3}, {ForegroundSet, 2}, {ReplaceSet, 5}, {MakePod, 5}, {MoveLabel, 4}, {MoveLabelBack, 3},
	{DeletePod, 7}, {ForceDeletePod, 3}, {FailPod, 6}, {SucceedPod, 2},
	{TaintNode, 4}, {UntaintNode, 4}, {CordonNode, 3}, {LabelNode, 5}, {RemoveNode, 4}, {AddNode, 5},
}

var partFaults = []chance{
	{SilenceNode, 4}, {WakeNode, 4}, {StopLoop, 6}, {KillLoop, 6}, {PauseLoop, 6}, {DropWatches, 5}, {Relist, 5},
	{SlowWatches, 7}, {FlakyWrites, 9},
	{RefuseNode, 5},
}

var processFaults = []chance{{KillServer, 5}, {StopServer, 2}, {PauseServer, 3}}

// apartFaults are those of a controller apart, and of its line to the server.
var apartFaults = []chance{
	{KillController, 8},
	{DropWatches, 2},
	{Relist, 3},
	{SlowWatches, 4},
	{FlakyWrites, 6},
	{RefuseNode, 3},
}

// Make makes a plan. It lasts at most length; the faults end with it. With policies it has the trouble that is
// wanted, any with "".
func Make(dice Dice, kind Kind, policies bool, want Trouble, length time.Duration) Plan {
	if policies {
		return makePoliced(dice, kind, want, length)
	}
	p := Plan{Kind: kind, Nodes: 4 + dice.IntN(5)}
	for i := range 1 + dice.IntN(Sets) {
		p.Steps = append(p.Steps, Step{
			At:    time.Duration(i) * time.Millisecond,
			Op:    CreateSet,
			Pick:  i,
			Other: dice.IntN(1 << 20),
			Third: dice.IntN(1 << 20),
		})
	}
	for range 14 + dice.IntN(14) {
		p.Steps = append(p.Steps, step(dice, users, length))
	}
	p.addFaults(dice, length)
	return p
}

// addFaults adds what goes wrong, and brings all steps in order.
func (p *Plan) addFaults(dice Dice, length time.Duration) {
	if p.Kind == Process {
		for range 1 + dice.IntN(serverFaults) {
			s := step(dice, processFaults, length)
			s.For = part(dice, 300*time.Millisecond, 1200*time.Millisecond)
			p.Steps = append(p.Steps, s)
		}
		p.Apart = dice.IntN(3) > 0
		for range 2 + dice.IntN(5) {
			if s := step(dice, apartFaults, length); p.Apart {
				s.For = part(dice, 100*time.Millisecond, length/2)
				p.Steps = append(p.Steps, s)
			}
		}
	} else {
		for range 6 + dice.IntN(8) {
			p.Steps = append(p.Steps, partFault(dice, length))
		}
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
}

func step(dice Dice, from []chance, length time.Duration) Step {
	return Step{
		At:    part(dice, 0, length),
		Op:    choose(dice, from),
		Pick:  dice.IntN(1 << 20),
		Other: dice.IntN(1 << 20),
		Third: dice.IntN(1 << 20),
	}
}

// partFault disturbs the DaemonSet controller as often as all other loops together.
func partFault(dice Dice, length time.Duration) Step {
	s := step(dice, partFaults, length)
	if s.Op == SilenceNode || s.Op == WakeNode {
		return s
	}
	s.Loop = Loops[0]
	if dice.IntN(2) == 0 && s.Op != RefuseNode {
		s.Loop = Loops[dice.IntN(len(Loops))]
	}
	return s.lasting(dice, length)
}

// lasting is a loop's fault that goes on for a while, if it is one of those that do.
func (s Step) lasting(dice Dice, length time.Duration) Step {
	if s.Op != DropWatches && s.Op != Relist && s.Op != KillLoop {
		s.For = part(dice, 100*time.Millisecond, length/2)
	}
	return s
}

func choose(dice Dice, from []chance) Op {
	sum := 0
	for _, c := range from {
		sum += c.weight
	}
	at := dice.IntN(sum)
	for _, c := range from {
		if at -= c.weight; at < 0 {
			return c.op
		}
	}
	panic("plan: the weights do not add up")
}

// part is a time from low to high, in whole milliseconds.
func part(dice Dice, low, high time.Duration) time.Duration {
	return low + time.Duration(dice.IntN(max(1, int((high-low)/time.Millisecond))))*time.Millisecond
}
