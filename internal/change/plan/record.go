package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
)

// record is what happened in a play, and what people gave for it.
type record struct {
	steps []*step
	of    map[string]*step // by node
	// touched are the nodes on which a pod was made or deleted, lack says of nodes without room what is short.
	touched map[string]bool
	lack    map[string][]string
	// resized are the nodes whose pod was given other amounts last, and whether its containers are restarted for it.
	resized map[string]bool
	actions int
	// away are the nodes whose pod was taken away for another than the newest revision, which has not come yet.
	away map[string]bool
	// wished are the nodes that are, or were, to have images before their daemon is taken away.
	wished map[string]bool
	// acts are the nodes on which something happened before anybody was asked; asked is what people were asked for, waits
	// what of it since the last step began.
	acts         map[string]bool
	asked, waits []string
	// status is where the rollout stands, first where it stood at first, progressing what the DaemonSet's own condition
	// says.
	status, first v1alpha1.DaemonSetRolloutStatus
	// guided tells that a policy is followed, or was, backwards that nodes go to the stable revision from the beginning.
	guided, backwards bool
	progressing       fact.Condition
	happened          time.Time
	// spent is how long the rollout was in each phase until something happened last, since for how long since then.
	spent, since map[v1alpha1.Phase]time.Duration
	warnings     []string
}

// step is nodes that were changed together.
type step struct {
	name  string
	nodes []string
	from  string
	soak  time.Duration
	asks  bool
	// fetches: nodes of it are to have the images before their daemon is taken away.
	fetches bool
	// underWay are nodes whose next pod is not available yet; most is how many they were at most.
	underWay map[string]bool
	most     int
}

const (
	all    = "all" // the name of the one step where no policy makes steps
	byHand = "when somebody deletes the old pod"
)

func newRecord() record {
	return record{
		of: map[string]*step{}, touched: map[string]bool{}, lack: map[string][]string{}, resized: map[string]bool{},
		away: map[string]bool{}, acts: map[string]bool{}, wished: map[string]bool{},
		spent: map[v1alpha1.Phase]time.Duration{}, since: map[v1alpha1.Phase]time.Duration{},
	}
}

// happens takes note of when something happened.
func (r *record) happens(now time.Time) {
	r.happened = now
	for phase, d := range r.since {
		r.spent[phase] += d
	}
	for _, s := range slices.Backward(r.steps) {
		if s.name == r.status.Step || s.name == all { // one of which no node changes is not listed, and soaks too
			s.soak += r.since[v1alpha1.PhaseSoaking]
			break
		}
	}
	clear(r.since)
}

// look takes note of where the rollout stands.
func (p *play) look() {
	st, guided := p.core.Rollout(p.set.DaemonSet.UID)
	begins, was := p.happened.IsZero(), p.status.Phase
	// Other phases come and go with windows, and mean nothing by themselves.
	turns := st.Phase != was && (was == v1alpha1.PhaseSoaking || st.Phase == v1alpha1.PhaseComplete || failed(&st))
	if begins || turns || st.Step != p.status.Step {
		p.happens(p.now)
		p.wish()
	}
	p.status, p.guided = st, guided
	if begins {
		p.first, p.backwards = st, p.returns()
	}
	p.leave()
}

// wish takes note of the nodes that are to have images. Who can be asked for them is; see perform.
func (p *play) wish() {
	follows := p.core.Follows
	if follows == nil || follows.Policy == nil || !follows.Policy.Fetches() {
		return
	}
	for _, n := range p.survey.Nodes {
		order, _ := p.core.Order(p.set.DaemonSet.UID, n.Name)
		p.wished[n.Name] = p.wished[n.Name] || order.Fetch != standing.NoWish
	}
}

// leave has nodes that are to have no daemon belong to their step when it begins also where they have none just then.
func (p *play) leave() {
	for _, node := range slices.Sorted(maps.Keys(p.away)) {
		order, guided := p.core.Order(p.set.DaemonSet.UID, node)
		if !p.away[node] || !guided || order.Target != p.set.Revision ||
			p.core.Selects(p.set.DaemonSet.UID, p.set.Revision, node) {
			continue
		}
		delete(p.away, node)
		p.touch(node, true)
		p.settled(node)
	}
}

// returns reports whether nodes go to the stable revision.
func (p *play) returns() bool {
	return p.guided && (p.status.Phase == v1alpha1.PhaseRolledBack || p.status.StableRevision == p.status.TargetRevision)
}

// note takes note of actions that are about to be done.
func (p *play) note(actions []action.Action) {
	p.look()
	for _, a := range actions {
		node, moves := "", false
		switch a := a.(type) {
		case *action.CreatePod:
			if p.cannotBeMade(a) {
				continue
			}
			delete(p.resized, a.Node)
			delete(p.away, a.Node)
			node, moves = a.Node, a.Revision == p.set.Revision || p.backwards
		case *action.DeletePod:
			node, moves = a.Node, p.replaces(a)
			p.away[node] = !moves && a.Reason == action.ReasonTurn
		case *action.PointPod:
			node, moves = a.Node, a.Revision == p.set.Revision || p.backwards
		case *action.ResizePod:
			p.actions++
			continue // whether it can be is found out when it is tried
		default:
			p.actions++
			continue
		}
		p.actions++
		p.touch(node, moves)
	}
}

// touch takes note of a node on which something is done; moves tells that its change begins by it.
func (p *play) touch(node string, moves bool) {
	p.happens(p.now)
	p.touched[node] = true
	if len(p.asked) == 0 {
		p.acts[node] = true
	}
	if moves && (!p.guided || p.returns() == p.backwards) {
		p.move(node)
	}
}

// replaces reports whether a pod is deleted because its node is to have another revision, or none.
func (p *play) replaces(a *action.DeletePod) bool {
	switch a.Reason {
	case action.ReasonTurn, action.ReasonOutdated, action.ReasonOutdatedUnavailable:
		order, guided := p.core.Order(p.set.DaemonSet.UID, a.Node)
		forward := p.revision(a.PodUID) != p.set.Revision && (!guided || order.Target == p.set.Revision)
		return forward || p.backwards
	}
	return false
}

// move takes note of a node whose change begins.
func (p *play) move(node string) {
	s := p.of[node]
	if s == nil {
		s = p.stepOf(node)
		s.fetches = s.fetches || p.wished[node]
		s.nodes = append(s.nodes, node)
		p.of[node] = s
		if p.answers(node) {
			s.underWay[node] = true
			s.most = max(s.most, len(s.underWay))
		}
	}
}

// stepOf is the step that a node belongs to, from now on if none of it has changed yet.
func (p *play) stepOf(node string) *step {
	name := all
	if p.guided && !p.returns() && p.status.StableRevision != "" {
		if of := p.core.StepOf(p.set.DaemonSet.UID, node); of != "" {
			name = of
		}
	}
	i := slices.IndexFunc(p.steps, func(s *step) bool { return s.name == name })
	if i >= 0 {
		return p.steps[i]
	}
	s := &step{name: name, from: p.from(name), underWay: map[string]bool{}}
	p.steps, p.waits = append(p.steps, s), nil
	return s
}

// from says what a step has waited for that begins now.
func (p *play) from(name string) string {
	before := p.first.Step
	if n := len(p.steps); n > 0 {
		before = p.steps[n-1].name
	}
	switch {
	case slices.Contains(p.waits, byHand):
		return byHand
	case len(p.waits) > 0:
		return "after " + strings.Join(p.waits, " and ")
	case len(p.steps) == 0 && p.now.Equal(p.survey.Now):
		return "now"
	case before != "" && before != name:
		return "after " + before
	case p.spent[v1alpha1.PhaseOutsideWindow] > 0:
		return p.now.UTC().Format("from Mon 2006-01-02 15:04 UTC")
	}
	return "now"
}

// settled takes note of a node on which nothing is under way any more.
func (r *record) settled(node string) {
	if s := r.of[node]; s != nil {
		delete(s.underWay, node)
	}
}

// lacks takes note of a pod that has no room.
func (p *play) lacks(o fact.Pod, reasons []string) {
	if p.touched[o.Node] && o.Revision == p.set.Revision {
		p.lack[o.Node] = reasons
	}
	p.settled(o.Node)
}

// helped takes note of what somebody was asked for.
func (p *play) helped(what, warning string) {
	p.asked, p.waits = append(p.asked, what), append(p.waits, what)
	if warning != "" {
		p.warnings = append(p.warnings, warning)
	}
}

// approved takes note of a step that was approved.
func (p *play) approved(st *v1alpha1.DaemonSetRolloutStatus) {
	p.helped("approval of "+st.Step, "")
	if n := len(p.steps); n > 0 && p.steps[n-1].name == st.Step {
		p.steps[n-1].asks, p.waits = true, nil
	}
	rules := p.core.Follows.Policy
	if at, known := rules.StepNamed(st.Step); known && !rules.Waves[at.Wave].Manual {
		p.warnings = append(p.warnings, st.Message)
	}
}

// help gives what people are asked for; false if that is nothing. A failed revision is not tried again: that is more
// than a word.
func (p *play) help() bool {
	if p.set.DaemonSet.Spec.UpdateStrategy.Type == "OnDelete" {
		return p.deleteOld()
	}
	r, st := p.rollout, &p.status
	if r == nil || p.core.Follows == nil || r.Status.TargetRevision != st.TargetRevision || r.Status.TargetDigest == "" {
		return false
	}
	next := r.DeepCopy()
	if !p.answer(&next.Spec, st) || apiequality.Semantic.DeepEqual(next.Spec, r.Spec) {
		return false // nobody is asked, or it was given and does not help
	}
	next.Generation++
	p.rollout = next
	p.core.Book.Step(rollouts.Rollout{Object: next})
	if p.set.LeaveContent(p.core) {
		for _, o := range p.pods {
			o.Revision = content.WithoutContent(o.Revision)
			p.tell(o)
		}
	}
	return true
}

// answer writes what people are asked for into a rollout's spec; false if that is nothing.
func (p *play) answer(spec *v1alpha1.DaemonSetRolloutSpec, st *v1alpha1.DaemonSetRolloutStatus) bool {
	approve := func(step string) {
		spec.Approved = &v1alpha1.StepApproval{Revision: st.TargetRevision, Digest: p.rollout.Status.TargetDigest, Step: step,
			Change: st.Change}
	}
	switch held := st.Phase == v1alpha1.PhasePaused && st.TargetRevision != st.StableRevision; {
	case st.Phase == v1alpha1.PhaseWaitingForApproval:
		approve(st.Step)
		p.approved(st)
	case held && p.core.Follows.Following == course.Followed && spec.Paused:
		spec.Paused = false
		const paused = "the rollout is paused; nothing begins before \"everynode rollout resume\""
		p.helped("resume", cmp.Or(p.core.Follows.PausedWhy, paused))
	case held && p.core.Follows.Following == course.Gone && !rollouts.TargetFailed(st):
		approve(v1alpha1.WithoutPolicy)
		p.helped("approval of step "+v1alpha1.WithoutPolicy, st.Message)
		if onlyContent(st) {
			p.warnings = append(p.warnings, "without a policy content is no part of revisions: "+
				"with that approval each pod keeps what it has until it is next made")
		}
	default:
		return false
	}
	return true
}

// onlyContent reports whether the target is other than the stable revision by its content alone.
func onlyContent(st *v1alpha1.DaemonSetRolloutStatus) bool {
	is, was := st.TargetRevision, st.StableRevision
	return content.TemplateOf(is) == content.TemplateOf(was) && content.VariantsOf(is) == content.VariantsOf(was)
}

// deleteOld deletes the pods that only somebody's deletion replaces.
func (p *play) deleteOld() bool {
	var old []action.Action
	for uid, o := range p.pods {
		outdated := p.revision(uid) != p.set.Revision && o.Phase == fact.PodActive && !o.Terminating
		if outdated && p.core.Selects(o.Owner, p.set.Revision, o.Node) {
			old = append(old, &action.DeletePod{Node: o.Node, PodUID: uid, Reason: action.ReasonOutdated})
		}
	}
	if len(old) == 0 {
		return false
	}
	p.helped(byHand, "")
	p.note(old)
	for _, a := range old {
		p.end(a.(*action.DeletePod).PodUID)
	}
	return true
}
