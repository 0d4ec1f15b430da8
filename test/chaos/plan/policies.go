package plan

import "time"

// What users do to RolloutPolicies and to rollouts, and to the templates and nodes
// that these are about.
const (
	MakePolicy    Op = "make policy"
	EditPolicy    Op = "edit policy"
	SpoilPolicy   Op = "edit policy to a time zone that does not exist"
	DeletePolicy  Op = "delete policy"
	Pause         Op = "pause rollout"
	Resume        Op = "resume rollout"
	Approve       Op = "approve step"
	Retry         Op = "retry failed revision"
	Abort         Op = "abort rollout"
	DeleteRollout Op = "delete rollout"
	CrashTemplate Op = "edit template to one whose containers end"
	StallTemplate Op = "edit template to one that never becomes ready"
	// What is deleted, what works no more, and what is long (trouble.go).
	DeleteRevision Op = "delete ControllerRevision"
	CreatePoorSet  Op = "create DaemonSet whose image does not work on poor nodes"
	PoorNodes      Op = "nodes become poor"
	EditContent    Op = "edit content"
	DeleteContent  Op = "delete content"
	BadContent     Op = "edit content to what makes containers end"
	SickNode       Op = "node says that it is not ready"
	WellNode       Op = "node is well again"
)

// policedUsers is what users do in rounds with policies: less to nodes, so that steps
// are got through, and more to templates and rollouts.
var policedUsers = []chance{
	{MakePolicy, 3}, {EditPolicy, 6}, {SpoilPolicy, 2}, {DeletePolicy, 3},
	{Pause, 4}, {Resume, 6}, {Approve, 18}, {Retry, 4}, {Abort, 3}, {DeleteRollout, 2},
	{EditTemplate, 14}, {BreakTemplate, 3}, {CrashTemplate, 4}, {StallTemplate, 2}, {Rollback, 4}, {EditPlacement, 2},
	{EditStrategy, 4},
	{CreateSet, 2}, {DeleteSet, 1}, {OrphanSet, 1}, {ReplaceSet, 2},
	{DeletePod, 6}, {ForceDeletePod, 2}, {FailPod, 2}, {MoveLabel, 1}, {MoveLabelBack, 1},
	{SickNode, 5}, {WellNode, 5}, {TaintNode, 2}, {UntaintNode, 3}, {CordonNode, 1}, {LabelNode, 2}, {RemoveNode, 3},
	{AddNode, 5},
}

// AllSets is how many numbers in a row stand for policies that select the same
// DaemonSets: the first so many select one, the next four times as many all.
const AllSets = 384

// policedLength is how many times longer rounds with policies last: steps take time.
const policedLength = 3

// makePoliced makes a plan in which a policy holds, and DaemonSets are complete, before
// anything happens to them. Its trouble is the one that is wanted, any with "".
func makePoliced(dice Dice, kind Kind, want Trouble, length time.Duration) Plan {
	p := Plan{Kind: kind, Nodes: 6 + dice.IntN(5), Policies: true}
	p.Trouble = Troubles[dice.IntN(len(Troubles))]
	if want != "" {
		p.Trouble = want
	}
	length *= policedLength
	with := func(op Op, pick int) Step {
		return Step{Op: op, Pick: pick, Other: dice.IntN(1 << 20), Third: dice.IntN(1 << 20)}
	}
	first := with(MakePolicy, dice.IntN(1<<20))
	first.Third = AllSets + first.Third%AllSets
	p.First = append(p.First, first)
	for i := range 1 + dice.IntN(2) {
		s := with(CreateSet, i)
		s.Other = s.Other/8*8 + s.Other%7 // not OnDelete, which no policy changes
		p.First = append(p.First, s)
	}
	for i := range p.First[1:] {
		s := with(EditTemplate, i)
		s.At = part(dice, 0, length/5)
		p.Steps = append(p.Steps, s)
	}
	for range 22 + dice.IntN(16) {
		p.Steps = append(p.Steps, step(dice, policedUsers, length))
	}
	p.addFaults(dice, length)
	p.addTrouble(dice, length)
	return p
}
