// Package fetches decides which pods there are that have nodes pull images before their daemons are taken away, where
// no agent of ours can be asked, and what the matrix is told of them.
//
// A Book stands between pins and the matrix. The matrix asks nodes as it asks agents, and learns what each of them says
// with the pod of its daemon; that a pod of another kind is made for it, it does not see. The book is pure: no clock,
// lock, goroutine, log or client. One goroutine owns it.
//
// Rules:
//
//   - Of a DaemonSet so many pods are there at once as a step may have nodes without their daemon, also of revisions
//     that nobody wants any more. A pod that a dead node does not let go, or that cannot be deleted, keeps no other one
//     waiting for ever. Nobody's deadline begins before its pod is made, or is refused.
//   - A pod goes when it has answered, when its deadline has passed, a minute after its first failure, when nobody
//     wants the images any more, and when nobody knows it. Where images could not be had another one is made after a
//     while, and after those of all nodes that were never asked: what fails for ever holds up no other.
//   - What came of it is written on the daemon's own pod: why and plan read it there, and the next controller.
//   - When pods are refused, or do not come so far as to pull, all nodes' deadlines begin: nobody waits for what may
//     never come.
package fetches

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

const (
	// failingFor is how long a pod is left to try again by itself, and pause after how long another one is made.
	failingFor = time.Minute
	pause      = 5 * time.Minute
	// retryFirst and retryLast are the shortest and longest time until another one is made in place of one that told
	// nothing, or was refused.
	retryFirst = 10 * time.Second
	retryLast  = 2 * time.Minute
	// unseen is how long one that was made may not be seen.
	unseen = 30 * time.Second
	// patience is a deadline that is not known, after a start.
	patience = 10 * time.Minute
)

// Objects are what the API holds.
type Objects interface {
	// Pod is nil if there is none.
	Pod(uid types.UID) *corev1.Pod
	// Retell has the matrix be told again of a pod.
	Retell(uid types.UID)
	// Template is that of a revision without its content; nil if it cannot be read.
	Template(daemonSet types.UID, hash string) *corev1.PodTemplateSpec
	// Spec is that of the pod of a revision on a node.
	Spec(daemonSet types.UID, revision, node string) (*corev1.PodSpec, error)
}

// rows is the matrix.
type rows = contents.Rows

// Book knows the pods that fetch.
type Book struct {
	rows
	// Objects is set before the first event.
	Objects Objects
	image   string
	now     time.Time
	sets    map[types.UID]*set
	// pulls are by the UID of the daemon's pod after which the images are needed.
	pulls map[types.UID]*pull
	// strays are pods of no pull, by their UID.
	strays map[types.UID]*stray
	// ghosts are pods that were asked for, and are wanted no more, before anybody has seen them; by their name.
	ghosts map[string]ghost
	jobs   []Job
	// held is until when none is deleted, since that has failed.
	held time.Time
}

// stray is a pod that nobody has asked for since the start, or that is unwanted; leaving tells that its deletion was
// asked for.
type stray struct {
	pod               *corev1.Pod
	of                *set // nil where it is not known
	unwanted, leaving bool
}

// ghost takes up a place from a time on.
type ghost struct {
	of   *set
	from time.Time
}

// set is what there is to know of a DaemonSet.
type set struct {
	info    *fact.DaemonSet
	follows bool // a policy
	// hindered is why pods are not made, or do not pull; refused tells that they are not made.
	hindered string
	refused  bool
	failures int
	until    time.Time // no pod is made before
	// moved is to be settled, at next by time alone, but not before rests.
	moved       bool
	next, rests time.Time
	pulls       map[types.UID]*pull
}

// pull is what is done for one node.
type pull struct {
	set    types.UID
	order  fetchpod.Order
	report fetch.Report
	// atOnce is how many pods may be there when its own comes, deadline how long that may take.
	atOnce   int
	deadline time.Duration
	// pod is the one that is there; leaving tells that its deletion was asked for.
	pod     *corev1.Pod
	leaving bool
	answer  fetchpod.Answer
	// made is since when one is being made, or was and is not seen; since when the last one was. failing is since when it
	// says that it fails; again is when to make the next.
	making, over                bool
	made, since, failing, again time.Time
	// noted is the reason that the daemon's pod says.
	noted fetch.Reason
}

// Job is something to do: exactly one of the first three is set.
type Job struct {
	Make, Delete *corev1.Pod
	// Note is a patch of the daemon's pod.
	Note            []byte
	Namespace, Name string
	of              types.UID // the UID of the daemon's pod
}

// Result is what became of a Job; Why is "" for what was done.
type Result struct {
	Job Job
	Why string
	// Taken says who has the name of the pod that was to be made; "" for nobody else.
	Taken string
}

// New returns an empty book. The image is that of Everynode; with "" no pod is made.
func New(of contents.Rows, image string) *Book {
	return &Book{rows: of, image: image, sets: map[types.UID]*set{}, pulls: map[types.UID]*pull{},
		strays: map[types.UID]*stray{}, ghosts: map[string]ghost{}}
}

// Step takes an event for the matrix in, and passes it on.
func (b *Book) Step(e matrix.Event) {
	if b.image == "" {
		b.rows.Step(e)
		return
	}
	switch e := e.(type) {
	case fact.Pod:
		e.Fetch = b.reportOf(e.UID)
		b.rows.Step(e)
	case fact.PodGone:
		if p := b.pulls[types.UID(e)]; p != nil {
			b.drop(p)
		}
		b.rows.Step(e)
	case fact.Rollout:
		s := b.of(e.UID)
		s.follows, s.moved = true, true // the limits of its policy may be others
		b.rows.Step(e)
	case fact.RolloutGone:
		b.of(types.UID(e)).follows = false
		b.rows.Step(e)
		for _, p := range b.dropAll(types.UID(e)) {
			b.Objects.Retell(p.order.DaemonUID)
		}
	case fact.DaemonSetGone:
		b.dropAll(types.UID(e))
		delete(b.sets, types.UID(e))
		b.rows.Step(e)
	case fact.DaemonSet:
		s := b.of(e.UID)
		s.info, s.moved = &e, true
		b.rows.Step(b.with(s))
	default:
		b.rows.Step(e)
	}
}

// reportOf is what the matrix is told of a daemon's pod. After a start one is asked again that could not have the
// images.
func (b *Book) reportOf(daemon types.UID) fetch.Report {
	if p := b.pulls[daemon]; p != nil {
		return p.report
	}
	if o := b.Objects.Pod(daemon); o != nil {
		if noted := fetchpod.Noted(o); noted.Reason.Done() {
			return noted
		}
	}
	return fetch.Report{}
}

// with is what the matrix is told of a DaemonSet.
func (b *Book) with(s *set) fact.DaemonSet {
	info := *s.info
	info.MoreImages, info.FetchHindered = 0, s.hindered
	template := b.Objects.Template(info.UID, content.TemplateOf(info.Revision))
	if s.hindered == "" && template != nil {
		info.FetchHindered = fetchpod.LeftOut(&template.Spec)
	}
	return info
}

func (b *Book) of(uid types.UID) *set {
	s := b.sets[uid]
	if s == nil {
		s = &set{pulls: map[types.UID]*pull{}}
		b.sets[uid] = s
	}
	return s
}

// Takes takes over what is to be asked or taken back, and reports whether pods do that.
func (b *Book) Takes(a *action.FetchImages) bool {
	switch {
	case b.image == "":
		return false
	case a.Revision == "":
		b.takeBack(a)
	default:
		b.ask(a)
	}
	return true
}

// ask has a node asked for the images of a revision, as soon as fewer others are. Who was asked is asked again.
func (b *Book) ask(a *action.FetchImages) {
	s := b.of(a.UID)
	s.moved = true
	p := b.pulls[a.PodUID]
	if p != nil && p.order.Revision != a.Revision {
		b.drop(p)
		p = nil
	}
	if p == nil {
		p = b.begin(a.UID, fetchpod.Order{Namespace: a.Namespace, Owner: a.Name, Daemon: a.PodName, DaemonUID: a.PodUID,
			Node: a.Node, Revision: a.Revision})
		if o := b.Objects.Pod(a.PodUID); o != nil { // one that failed for an earlier controller goes last
			p.since = fetchpod.Noted(o).Answered
		}
	}
	waits := s.hindered == "" && (p.pod == nil || p.leaving || p.answer.Over)
	p.report = fetch.Report{Revision: a.Revision, At: b.now, Queued: waits, Why: s.hindered}
	p.over, p.again, p.noted = false, time.Time{}, ""
	b.Objects.Retell(a.PodUID)
}

// takeBack has nobody ask for the images that were asked for after a daemon's pod.
func (b *Book) takeBack(a *action.FetchImages) {
	if p := b.pulls[a.PodUID]; p != nil {
		b.drop(p)
	}
	if o := b.Objects.Pod(a.PodUID); o != nil && fetchpod.Noted(o) != (fetch.Report{}) {
		b.note(o.Namespace, o.Name, a.PodUID, nil)
	}
	b.Objects.Retell(a.PodUID)
}

func (b *Book) begin(set types.UID, o fetchpod.Order) *pull {
	p := &pull{set: set, order: o, atOnce: 1, deadline: patience}
	b.pulls[o.DaemonUID] = p
	b.of(set).pulls[o.DaemonUID] = p
	return p
}

// drop ends what is done for a node.
func (b *Book) drop(p *pull) {
	delete(b.pulls, p.order.DaemonUID)
	delete(b.sets[p.set].pulls, p.order.DaemonUID)
	b.sets[p.set].moved = true
	switch {
	case p.pod != nil:
		b.strays[p.pod.UID] = &stray{pod: p.pod, of: b.sets[p.set], unwanted: true, leaving: p.leaving}
	case p.making || !p.made.IsZero():
		b.ghosts[p.order.Name()] = ghost{b.sets[p.set], b.now}
	}
}

// dropAll ends what is done for all nodes of a DaemonSet, and returns what that was.
func (b *Book) dropAll(uid types.UID) (dropped []*pull) {
	s := b.sets[uid]
	if s == nil {
		return nil
	}
	s.hindered, s.refused, s.failures = "", false, 0
	dropped = slices.Collect(maps.Values(s.pulls))
	for _, p := range dropped {
		b.drop(p)
	}
	return dropped
}

// Tell takes in a pod that fetches.
func (b *Book) Tell(pod *corev1.Pod, gone bool) {
	daemon, revision := fetchpod.Of(pod)
	p, known := b.pulls[daemon], b.strays[pod.UID]
	if known != nil && known.of != nil {
		known.of.moved = true // it leaves its place to another one
	}
	if gone {
		delete(b.strays, pod.UID)
	}
	switch {
	case known != nil && !gone:
		known.pod, known.leaving = pod, known.leaving || pod.DeletionTimestamp != nil
		return
	case p == nil || p.order.Revision != revision || p.pod != nil && p.pod.UID != pod.UID:
		if !gone {
			info, _ := b.rows.Pod(daemon)
			b.strays[pod.UID] = &stray{pod: pod, of: cmp.Or(b.ghosts[pod.Name].of, b.sets[info.Owner]),
				leaving: pod.DeletionTimestamp != nil}
			delete(b.ghosts, pod.Name)
		}
		return
	case gone:
		p.pod, p.leaving, p.answer, p.made = nil, false, fetchpod.Answer{}, time.Time{}
	default:
		b.hear(p, pod)
	}
	b.sets[p.set].moved = true
}

// hear takes in what a pod tells.
func (b *Book) hear(p *pull, pod *corev1.Pod) {
	said := p.report
	if p.pod == nil {
		p.answer, p.failing = fetchpod.Answer{}, time.Time{}
		if said.Reason == "" {
			said.Why = "" // what kept it from being made
		}
		b.sets[p.set].failures = 0
		b.free(p.set, true)
	}
	p.pod, p.making, p.made = pod, false, time.Time{}
	p.leaving = p.leaving || pod.DeletionTimestamp != nil
	if p.answer.Over || p.leaving && p.report.Queued {
		return
	}
	p.answer = fetchpod.Read(pod, p.answer)
	if said.Queued {
		said.Queued, said.At = false, b.now
	}
	switch is := &p.answer; {
	case is.Reason != "":
		if said.Reason != is.Reason {
			said.Answered = b.now
		}
		said.Reason, said.Why = is.Reason, is.Why
		b.free(p.set, false)
	case said.Reason == "":
		said.Why = cmp.Or(is.Why, said.Why)
	}
	if p.answer.Hindered && !b.anyAnswered(p.set) { // else it is this node's trouble
		b.hinder(p.set, p.answer.Why, false)
	}
	if said != p.report {
		p.report = said
		b.Objects.Retell(p.order.DaemonUID)
	}
}

// anyAnswered reports whether some node of the DaemonSet has answered.
func (b *Book) anyAnswered(uid types.UID) bool {
	for _, p := range b.sets[uid].pulls {
		if p.report.Reason != "" {
			return true
		}
	}
	return false
}

// hinder has all deadlines of a DaemonSet begin, since its pods are refused or do not pull.
func (b *Book) hinder(uid types.UID, why string, refused bool) {
	s := b.sets[uid]
	if s.hindered == why {
		return
	}
	s.hindered, s.refused = why, refused
	b.show(s)
	for daemon, p := range s.pulls {
		if p.report.Queued {
			p.report.Queued, p.report.At, p.report.Why = false, b.now, why
			b.Objects.Retell(daemon)
		}
	}
}

// free takes back that pods are hindered; only that they are refused, where no more is known.
func (b *Book) free(uid types.UID, onlyRefused bool) {
	s := b.sets[uid]
	if s.hindered != "" && (s.refused || !onlyRefused) {
		s.hindered, s.refused = "", false
		b.show(s)
	}
}

func (b *Book) show(s *set) {
	if s.info != nil {
		b.rows.Step(b.with(s))
	}
}
