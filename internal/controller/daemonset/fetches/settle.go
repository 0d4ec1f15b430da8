package fetches

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// Tick says what time it is.
func (b *Book) Tick(now time.Time) { b.now = now }

// NextTick returns when there is something to do by time alone, if ever.
func (b *Book) NextTick() (at time.Time, ok bool) {
	for _, s := range b.sets {
		switch {
		case !s.rests.After(b.now):
			at = deadline.Sooner(at, s.next)
		case s.moved || !s.next.IsZero():
			at = deadline.Sooner(at, s.rests)
		}
	}
	at = deadline.Sooner(at, deadline.Ahead(b.held, b.now))
	return at, !at.IsZero()
}

// Jobs returns what is to be done now, each once.
func (b *Book) Jobs() []Job {
	for _, s := range b.strays {
		if !s.leaving && !b.held.After(b.now) && (s.unwanted || !b.adopt(s.pod)) {
			s.leaving = true
			b.jobs = append(b.jobs, Job{Delete: s.pod})
		}
	}
	for _, s := range b.sets {
		if (s.moved || !s.next.IsZero() && !s.next.After(b.now)) && !s.rests.After(b.now) {
			s.moved = false
			b.settle(s)
		}
	}
	out := b.jobs
	b.jobs = nil
	return out
}

// adopt goes on with a pod that an earlier controller made, and reports whether that is right: it is for a daemon's pod
// that is there, of a DaemonSet that follows a policy.
func (b *Book) adopt(pod *corev1.Pod) bool {
	daemon, revision := fetchpod.Of(pod)
	info, there := b.rows.Pod(daemon)
	s := b.sets[info.Owner]
	if b.image == "" || !there || b.pulls[daemon] != nil || s == nil || s.info == nil || !s.follows {
		return false
	}
	delete(b.strays, pod.UID)
	p := b.begin(info.Owner, fetchpod.Order{Namespace: pod.Namespace, Owner: s.info.Name, Daemon: info.Name,
		DaemonUID: daemon, Node: info.Node, Revision: revision})
	p.report = fetch.Report{Revision: revision, At: pod.CreationTimestamp.UTC()}
	p.since, s.moved = b.now, true
	b.hear(p, pod)
	b.Objects.Retell(daemon)
	return true
}

// rest is for how long a DaemonSet of which many nodes wait is left alone afterwards, for each of them. To look at one
// takes a tenth of that, and none of them has its image in that time.
const (
	many = 1000
	rest = 40 * time.Microsecond
)

// settle decides for the nodes of a DaemonSet: which pods go, and which are made.
func (b *Book) settle(s *set) {
	s.next = time.Time{}
	pulls := slices.SortedFunc(maps.Values(s.pulls), byTurn)
	if len(pulls) >= many {
		s.rests = b.now.Add(time.Duration(len(pulls)) * rest)
	}
	there := b.look(s, pulls)
	for _, p := range pulls {
		switch {
		case p.pod != nil && p.report.Queued && !b.isThere(s, p.pod):
			b.await(p) // its node does not let the last one go: no other can be made
		case !p.wants():
		case p.again.After(b.now):
			s.next = deadline.Sooner(s.next, p.again)
		case s.until.After(b.now):
			s.next = deadline.Sooner(s.next, s.until)
		case there < p.atOnce && b.make(p):
			there++
		}
	}
}

// look decides about the pods that are there, and returns how many keep others waiting.
func (b *Book) look(s *set, pulls []*pull) (there int) {
	for _, p := range pulls {
		if atOnce, patience, ok := b.rows.MayFetch(p.set, p.order.Node); ok {
			p.atOnce, p.deadline = max(atOnce, 1), patience
		}
		b.judge(s, p)
		if p.pod == nil && (p.making || !p.made.IsZero()) || p.pod != nil && b.isThere(s, p.pod) {
			there++
		}
	}
	return there + b.unwanted(s)
}

// byTurn has nodes asked that never were, before those where it is tried again: these may fail for ever. Who has waited
// for longest comes first.
func byTurn(a, c *pull) int {
	switch {
	case a.report.Queued && !c.report.Queued:
		return -1
	case c.report.Queued && !a.report.Queued:
		return 1
	}
	waits := a.since.Compare(c.since)
	if a.report.Queued {
		waits = cmp.Or(a.report.At.Compare(c.report.At), waits)
	}
	return cmp.Or(waits, cmp.Compare(a.order.Node, c.order.Node), cmp.Compare(a.order.DaemonUID, c.order.DaemonUID))
}

// unwanted is how many pods are there, or may be, that nobody wants any more.
func (b *Book) unwanted(s *set) (there int) {
	for _, y := range b.strays {
		if y.of == nil { // after a start pods may be known before their daemons
			daemon, _ := fetchpod.Of(y.pod)
			info, _ := b.rows.Pod(daemon)
			y.of = b.sets[info.Owner]
		}
		if y.of == s && b.isThere(s, y.pod) {
			there++
		}
	}
	for name, g := range b.ghosts {
		if g.of == s && b.isDue(s, g.from.Add(unseen)) {
			delete(b.ghosts, name)
		} else if g.of == s {
			there++
		}
	}
	return there
}

// isThere reports whether a pod keeps others waiting: one that its node does not let go does so no longer than it is
// waited for that a pod is seen, and one that cannot be deleted until it has ended by itself.
func (b *Book) isThere(s *set, pod *corev1.Pod) bool {
	switch ends := pod.Spec.ActiveDeadlineSeconds; {
	case pod.DeletionTimestamp != nil:
		return !b.isDue(s, pod.DeletionTimestamp.Add(unseen))
	case ends != nil:
		return !b.isDue(s, pod.CreationTimestamp.Add(time.Duration(*ends)*time.Second))
	}
	return true
}

// wants reports whether another pod is to be made, now or later.
func (p *pull) wants() bool {
	return p.pod == nil && !p.making && p.made.IsZero() && !p.over && !p.report.Reason.Done()
}

// judge decides about the pod that is there, and has the daemon's say what is known.
func (b *Book) judge(s *set, p *pull) {
	if is := p.report.Reason; is != "" && is != p.noted {
		p.noted = is
		b.note(p.order.Namespace, p.order.Daemon, p.order.DaemonUID, &p.report)
	}
	switch {
	case p.leaving, p.pod != nil && !b.isDue(s, b.held):
	case p.pod == nil:
		if !p.made.IsZero() && b.isDue(s, p.made.Add(unseen)) {
			p.made = time.Time{}
			b.retry(p)
		}
	case b.ends(s, p):
		p.leaving = true
		b.jobs = append(b.jobs, Job{Delete: p.pod, of: p.order.DaemonUID})
	}
}

// isDue reports whether the time has come, and has the DaemonSet be settled then.
func (b *Book) isDue(s *set, at time.Time) bool {
	if at.After(b.now) {
		s.next = deadline.Sooner(s.next, at)
		return false
	}
	return true
}

// ends reports whether the pod that is there is to go, and decides whether another one comes, and when.
func (b *Book) ends(s *set, p *pull) bool {
	switch is := &p.answer; {
	case p.report.Queued: // it was asked again, and gets another one
	case is.Reason.Done():
		p.over = true
	case is.Reason != "":
		if p.failing.IsZero() {
			p.failing = b.now
		}
		p.again = b.now.Add(pause)
		return is.Over || b.isDue(s, deadline.Sooner(p.failing.Add(failingFor), p.since.Add(p.deadline)))
	case is.Over:
		b.retry(p)
	default: // after that nobody waits for it
		p.over = b.isDue(s, p.since.Add(p.deadline))
		return p.over
	}
	return true
}

// retry has another pod come in place of one that told nothing, or could not be made, while somebody waits for it.
func (b *Book) retry(p *pull) {
	if !p.report.Queued { // else it was asked once more meanwhile
		p.over, p.again = !p.report.At.Add(p.deadline).After(b.now), b.now.Add(retryLast)
	}
}

// make has a pod be made, and reports whether it is.
func (b *Book) make(p *pull) bool {
	p.since = b.now
	spec, err := b.Objects.Spec(p.set, p.order.Revision, p.order.Node)
	if err != nil {
		b.refuse(p, err.Error())
		return false
	}
	if p.report.Queued {
		b.await(p)
	}
	p.making = true
	o := p.order
	o.Spec, o.Image, o.Deadline = spec, b.image, p.deadline
	b.jobs = append(b.jobs, Job{Make: o.Pod(), of: o.DaemonUID})
	return true
}

// await has a node's deadline begin that waits for its turn.
func (b *Book) await(p *pull) {
	p.report.Queued, p.report.At = false, b.now
	b.Objects.Retell(p.order.DaemonUID)
}

// refuse takes in why a pod cannot be made.
func (b *Book) refuse(p *pull, why string) {
	s := b.sets[p.set]
	s.until = b.now.Add(min(retryFirst<<min(s.failures, 10), retryLast))
	s.failures++
	s.next = deadline.Sooner(s.next, s.until)
	b.hinder(p.set, "pods that fetch images are not made: "+fetch.Short(why), true)
}

func (b *Book) note(namespace, name string, daemon types.UID, r *fetch.Report) {
	patch, err := fetchpod.Note(string(daemon), r)
	if err == nil {
		b.jobs = append(b.jobs, Job{Note: patch, Namespace: namespace, Name: name, of: daemon})
	}
}

// TellResult takes in what became of a job.
func (b *Book) TellResult(r Result) {
	p := b.pulls[r.Job.of]
	switch {
	case r.Job.Delete != nil && r.Why != "":
		b.notDeleted(p, r.Job.Delete)
	case p == nil:
	case r.Job.Note != nil && r.Why != "":
		p.noted = ""
	case r.Job.Make == nil || !p.making: // it was seen before its creation is answered
	case r.Why != "":
		p.making = false
		b.refuse(p, r.Why)
	default:
		s := b.sets[p.set]
		p.making, s.moved = false, true
		if r.Taken == "" {
			p.made = b.now
		} else { // that holds up this node alone, until the deadline
			b.retry(p)
		}
		if p.report.Reason == "" && p.report.Why != r.Taken {
			p.report.Why = r.Taken
			b.Objects.Retell(p.order.DaemonUID)
		}
	}
}

// notDeleted has a pod be deleted once more, soon, that was not.
func (b *Book) notDeleted(p *pull, pod *corev1.Pod) {
	b.held = b.now.Add(retryFirst)
	if p != nil && p.pod != nil && p.pod.UID == pod.UID {
		p.leaving, b.sets[p.set].moved = false, true
	}
	if s := b.strays[pod.UID]; s != nil {
		s.leaving = false
	}
}
