package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/loop/deadline"
	"github.com/everynode/everynode/internal/node"
)

// play is the controller's core at work on nodes that behave well. A pod that is made is bound at once if it has room,
// and ready after a while; one that is deleted is gone at once. Where a node is not ready nothing moves. What people
// are asked for they give: see help.
type play struct {
	survey *survey.Survey
	set    *survey.Set
	core   *survey.Core
	now    time.Time
	// starts is how long a pod takes to become ready.
	starts time.Duration
	// queue is the pods that start, in the order in which they do: those before ready are ready, those before up are
	// available.
	queue     []start
	ready, up int
	pods      map[types.UID]fact.Pod
	// unplaced are the pods that have no room, by node.
	unplaced map[string]types.UID
	rooms    map[string]*survey.Room
	rollout  *v1alpha1.DaemonSetRollout
	made     int
	tried    time.Time // when a pod could not be made last
	// molded are the pods that are made, or given other amounts, where there are variants.
	molded map[types.UID]*corev1.Pod
	// unanswered are the nodes that were asked to give their pod other amounts, and have not said what comes of it.
	unanswered []string
	record
}

// start is a pod that begins to run.
type start struct {
	pod  types.UID
	from time.Time
}

// retries is the longest pause before a pod is tried again that cannot be made: in a play nothing changes that. What
// comes sooner than answers after such a try comes before people answer.
const retries, answers = time.Hour, time.Second

func newPlay(s *survey.Survey, set *survey.Set, starts time.Duration) *play {
	p := &play{
		survey: s, set: set, core: set.Core(row.Config{MaxRetryDelay: retries}), now: s.Now, starts: starts,
		pods: map[types.UID]fact.Pod{}, unplaced: map[string]types.UID{}, rooms: map[string]*survey.Room{},
		molded: map[types.UID]*corev1.Pod{}, record: newRecord(),
	}
	if p.core.Variants != nil {
		p.core.Variants.Objects = objects{p.core.Variants.Objects, p.molded}
	}
	p.rollout = p.core.Book.RolloutOf(set.DaemonSet)
	for _, n := range s.Nodes {
		for _, o := range set.Pods(n.Name) {
			is := set.Project(o)
			if told, known := p.core.Pod(o.UID); known {
				is.Revision = told.Revision // by its variants
			}
			p.begin(is)
		}
	}
	slices.SortStableFunc(p.queue, func(a, b start) int { return a.from.Compare(b.from) })
	return p
}

// begin takes a pod in that is there.
func (p *play) begin(o fact.Pod) {
	if o.Fetch.Revision != "" {
		p.wished[o.Node] = o.Fetch.Revision == p.set.Revision
		p.fetch(&o)
		p.core.Step(o)
	}
	p.pods[o.UID] = o
	switch {
	case o.Terminating:
		p.end(o.UID)
	case !o.Bound:
		p.place(o)
	case p.answers(o.Node) && o.Phase == fact.PodActive && o.Trouble == "":
		from := p.now
		switch {
		case givenSoon(&o):
			p.unanswered = append(p.unanswered, o.Node)
		case !o.Pointed.IsZero() && !o.Resized && o.Mounted.IsZero():
			p.show(o)
			return
		case o.Ready:
			from = o.ReadySince.Add(-p.starts)
		}
		if from.Add(p.batch()).After(p.now) {
			p.queue = append(p.queue, start{o.UID, from})
		}
	}
}

// answers reports whether pods start and end on the node.
func (p *play) answers(name string) bool {
	n := p.survey.Node(name)
	if n == nil {
		return false
	}
	ready := node.Condition(n, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// mostActions is how many actions a node may take before the play is given up: it would not come to rest.
const mostActions = 100

// run plays until nothing more happens, and nobody is asked for anything.
func (p *play) run() error {
	for {
		if err := p.settle(); err != nil {
			return err
		}
		at, ok := p.next()
		if soon := ok && at.Before(p.tried.Add(answers)); !soon && p.up == len(p.queue) && p.help() {
			continue
		}
		if !ok {
			return nil
		}
		p.wait(at)
	}
}

// settle has the core do all that it does at this moment.
func (p *play) settle() error {
	for {
		p.core.Settle()
		actions := p.core.Ready()
		if len(actions) == 0 {
			break
		}
		p.note(actions)
		for _, a := range actions {
			p.perform(a)
		}
		if p.actions > mostActions*(len(p.survey.Nodes)+mostActions) {
			return errors.New("what would be done does not come to an end")
		}
	}
	p.look()
	return nil
}

// idle is how long nothing happens before nothing more will: windows open once a week.
const idle = 15 * 24 * time.Hour

// next is when something may happen next.
func (p *play) next() (time.Time, bool) {
	at, _ := p.core.NextTick()
	if p.ready < len(p.queue) {
		at = deadline.Sooner(at, p.queue[p.ready].from.Add(p.starts))
	}
	if p.up < len(p.queue) {
		at = deadline.Sooner(at, p.queue[p.up].from.Add(p.batch()))
	}
	if !at.After(p.now) && !at.IsZero() {
		at = p.now.Add(time.Millisecond)
	}
	return at, !at.IsZero() && (p.status.Phase == v1alpha1.PhaseSoaking || at.Before(p.happened.Add(idle)))
}

// batch is how long a pod takes to become available.
func (p *play) batch() time.Duration {
	return p.starts + time.Duration(p.set.DaemonSet.Spec.MinReadySeconds)*time.Second
}

// wait moves the clock.
func (p *play) wait(to time.Time) {
	p.since[p.status.Phase] += to.Sub(p.now)
	p.now = to
	p.core.Step(fact.Now{Time: to})
	p.core.Book.Step(rollouts.Now{Time: to})
	for ; p.ready < len(p.queue) && !p.queue[p.ready].from.Add(p.starts).After(to); p.ready++ {
		if o, there := p.pods[p.queue[p.ready].pod]; there {
			at := p.queue[p.ready].from.Add(p.starts)
			if givenSoon(&o) {
				o.Mounted = at
			}
			if !o.Ready {
				o.Ready, o.ReadySince = true, at
			}
			p.tell(o)
		}
	}
	for ; p.up < len(p.queue) && !p.queue[p.up].from.Add(p.batch()).After(to); p.up++ {
		p.settled(p.pods[p.queue[p.up].pod].Node)
		p.happens(p.now)
	}
}

func (p *play) tell(o fact.Pod) {
	p.pods[o.UID] = o
	p.core.Step(o)
}

// perform does an action, and answers it.
func (p *play) perform(a action.Action) {
	answer := action.Answer{Action: a}
	switch a := a.(type) {
	case *action.CreatePod:
		if p.cannotBeMade(a) {
			p.tried, answer.Outcome, answer.Refused = p.now, action.Failed, p.refusal(a)
		} else {
			answer.Pod = p.create(a)
		}
	case *action.DeletePod:
		p.end(a.PodUID)
	case *action.PointPod:
		p.point(a)
	case *action.ResizePod:
		answer.Outcome, answer.Refused = p.resize(a)
	case *action.FetchImages:
		o := p.pods[a.PodUID]
		o.Fetch, p.wished[a.Node] = fetch.Report{Revision: a.Revision, At: p.now}, p.wished[a.Node] || a.Revision != ""
		p.fetch(&o)
		p.tell(o)
	case *action.UpdateStatus:
		p.progressing = a.Conditions.Progressing
	case *action.UpdateRollout:
		p.store(a)
	default:
		return // no outcome is expected
	}
	p.core.Step(answer)
}

func (p *play) create(a *action.CreatePod) types.UID {
	p.made++
	o := fact.Pod{
		UID: types.UID(fmt.Sprintf("play/%d", p.made)), Name: a.PodName, Owner: a.UID, Node: a.Node,
		Revision: a.Revision, Before: a.Before, Created: p.now,
	}
	p.mold(&o)
	p.tell(o)
	p.place(o)
	return o.UID
}

// fetch has a node have the images at once that it was asked for.
func (p *play) fetch(o *fact.Pod) {
	if o.Fetch.Revision == "" {
		o.Fetch = fetch.Report{}
	} else if p.answers(o.Node) {
		o.Fetch.Reason, o.Fetch.Why, o.Fetch.Answered, o.Fetch.Queued = fetch.Fetched, "", p.now, false
	}
}

// place has the scheduler look at a pod. One that is there already beside it takes its room.
func (p *play) place(o fact.Pod) {
	room := p.roomFor(o)
	var gone, resized []*corev1.Pod
	for _, old := range p.set.Pods(o.Node) {
		_, there := p.pods[old.UID]
		switch is := p.molded[old.UID]; {
		case !there:
			gone = append(gone, old)
		case is != nil:
			resized = append(resized, is)
		}
	}
	if reasons := room.Reasons(o.Node, gone, resized...); len(reasons) > 0 {
		o.Unplaceable, p.unplaced[o.Node] = strings.Join(reasons, "; "), o.UID
		p.lacks(o, reasons)
		p.tell(o)
		return
	}
	delete(p.unplaced, o.Node)
	delete(p.lack, o.Node)
	o.Bound, o.BoundAt, o.Unplaceable = true, p.now, ""
	p.tell(o)
	if p.answers(o.Node) {
		p.queue = append(p.queue, start{o.UID, p.now})
	} else {
		p.settled(o.Node)
	}
}

// revision is the one that a pod is as good as.
func (p *play) revision(uid types.UID) string {
	told, known := p.core.Pod(uid)
	if !known {
		return p.pods[uid].Revision
	}
	return told.Revision
}

// outcome is what the pod of a revision is to be like on a node; nil without variants. The error says why it is not
// known, or cannot be made.
func (p *play) outcome(revision, node string) (*variant.Outcome, error) {
	if p.core.Variants == nil {
		return nil, nil
	}
	o, err := p.core.Variants.Outcome(p.set.DaemonSet.UID, revision, node)
	if err == nil && o != nil {
		err = o.Err
	}
	return o, err
}

// cannotBeMade reports whether no pod of the revision can be made on the node.
func (p *play) cannotBeMade(a *action.CreatePod) bool {
	_, err := p.outcome(a.Revision, a.Node)
	return err != nil
}

// refusal is why, where that lasts; "" else.
func (p *play) refusal(a *action.CreatePod) string {
	if o, err := p.outcome(a.Revision, a.Node); o != nil && err != nil {
		return err.Error()
	}
	return ""
}

// templateOf is what pods of the revision are made of on the node, and by what.
func (p *play) templateOf(revision, node string) (*corev1.PodTemplateSpec, variant.Mark) {
	o, err := p.outcome(revision, node)
	if o == nil || err != nil || o.Plain {
		return p.set.Template(revision), variant.Mark{}
	}
	template := o.Template.DeepCopy()
	o.Resources.Fill(&template.Spec)
	return template, o.Mark
}

// mold keeps a pod that is made as the API would hold it, where variants look at it.
func (p *play) mold(o *fact.Pod) {
	if p.core.Variants == nil {
		return
	}
	template, mark := p.templateOf(o.Revision, o.Node)
	made := survey.Candidate(template, p.set.DaemonSet.Namespace, o.Node)
	made.Name, made.UID = o.Name, o.UID
	sign(made, o.Revision, &mark)
	p.molded[o.UID] = made
}

// roomFor asks where a pod has room.
func (p *play) roomFor(o fact.Pod) *survey.Room {
	if p.core.Variants != nil { // each may be another
		is := p.core.Variants.Objects.Pod(o.UID)
		return p.survey.Room(&corev1.PodTemplateSpec{ObjectMeta: is.ObjectMeta, Spec: is.Spec}, is.Namespace)
	}
	room := p.rooms[o.Revision]
	if room == nil {
		room = p.survey.Room(p.set.Template(o.Revision), p.set.DaemonSet.Namespace)
		p.rooms[o.Revision] = room
	}
	return room
}

// resize gives a running pod other amounts, if there is a way: one that is not restarted for them has them at once.
func (p *play) resize(a *action.ResizePod) (action.Outcome, string) {
	way, why, err := p.core.Variants.Resize(a.UID, a.PodUID, a.Revision, a.Node)
	switch {
	case err != nil:
		return action.Failed, ""
	case why != "":
		return action.Failed, why
	case len(way.Restarts) > 0 && a.Gapless:
		return action.Failed, "its containers would be restarted"
	}
	p.resized[a.Node] = len(way.Restarts) > 0
	p.touch(a.Node, a.Revision == p.set.Revision || p.backwards)
	is := p.core.Variants.Objects.Pod(a.PodUID).DeepCopy()
	way.Amounts.Fill(&is.Spec)
	sign(is, a.Revision, &way.Mark)
	answered(is)
	p.molded[a.PodUID] = is
	o := p.pods[a.PodUID]
	o.Revision, o.Before, o.Pointed, o.Resized, o.Unplaceable = a.Revision, a.Before, a.At, true, ""
	o.Mounted = p.now
	if neverFits(is, p.survey.Node(a.Node)) {
		infeasible(is, p.now)
		p.tell(o)
		return action.OK, ""
	}
	if reasons := p.roomFor(o).Reasons(o.Node, p.set.Pods(o.Node)); len(reasons) > 0 {
		o.Unplaceable, o.Mounted = strings.Join(reasons, "; "), time.Time{}
		p.lacks(o, reasons)
		p.tell(o)
		return action.OK, ""
	}
	if len(way.Restarts) > 0 {
		o.Ready, o.ReadySince = false, time.Time{}
	}
	p.tell(o)
	p.queue = append(p.queue, start{o.UID, p.now})
	return action.OK, ""
}

// point has a running pod show other content.
func (p *play) point(a *action.PointPod) {
	o := p.pods[a.PodUID]
	o.Revision, o.Before, o.Pointed = a.Revision, a.Before, a.At
	p.show(o)
}

// show has a pod show what it was pointed at. It takes as long as a start: an agent is faster, and nobody knows how
// long the daemon takes.
func (p *play) show(o fact.Pod) {
	o.Mounted, o.Ready, o.ReadySince = p.now, false, time.Time{}
	p.tell(o)
	p.queue = append(p.queue, start{o.UID, p.now})
}

// end takes a pod away that is deleted.
func (p *play) end(uid types.UID) {
	o := p.pods[uid]
	if o.Bound && !p.answers(o.Node) {
		if !o.Terminating {
			o.Terminating, o.EndsBy, o.WasReady = true, p.now.Add(30*time.Second), o.Ready
			p.tell(o)
		}
		return
	}
	delete(p.pods, uid)
	p.core.Step(fact.PodGone(uid))
	p.settled(o.Node)
	if waiting, there := p.pods[p.unplaced[o.Node]]; there && o.Bound {
		p.place(waiting) // what had no room may have some
	}
}

// store keeps where the rollout stands, as the controller's shell does.
func (p *play) store(a *action.UpdateRollout) {
	r := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name, Generation: 1}}
	if p.rollout != nil {
		r = p.rollout.DeepCopy()
	} else if a.PausedWhy != "" {
		r.Spec.Paused = true
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, rollouts.PausedBecause, a.PausedWhy)
	}
	metav1.SetMetaDataLabel(&r.ObjectMeta, rollouts.OwnerLabel, string(a.UID))
	r.Status = a.Status
	p.rollout = r
	p.core.Book.Step(rollouts.Rollout{Object: r})
}
