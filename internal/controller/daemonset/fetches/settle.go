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
		at = deadline.Sooner(at, s.next)
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
		if s.moved || !s.next.IsZero() && !s.next.After(b.now) {
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

// settle decides for the nodes of a DaemonSet: which pods go, and which are made.
func (b *Book) settle(s *set) {
	s.next = time.Time{}
	pulls := slices.SortedFunc(maps.Values(s.pulls), func(a, c *pull) int {
		return cmp.Or(cmp.Compare(a.order.Node, c.order.Node), cmp.Compare(a.order.DaemonUID, c.order.DaemonUID))
	})
	there := 0
	for _, p := range pulls {
		b.look(s, p)
		if p.pod == nil && (p.making || !p.made.IsZero()) || p.pod != nil && b.isThere(s, p.pod) {
			there++
		}
	}
	there += b.unwanted(s)
	for _, p := range pulls {
		switch {
		case !p.wants():
		case p.again.After(b.now):
			s.next = deadline.Sooner(s.next, p.again)
		case s.until.After(b.now):
			s.next = deadline.Sooner(s.next, s.until)
		case there < s.atOnce && b.make(s, p):
			there++
		}
	}
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
// waited for that a pod is seen.
func (b *Book) isThere(s *set, pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil || !b.isDue(s, pod.DeletionTimestamp.Add(unseen))
}

// wants reports whether another pod is to be made, now or later.
func (p *pull) wants() bool {
	return p.pod == nil && !p.making && p.made.IsZero() && !p.over && !p.report.Reason.Done()
}

// look decides about the pod that is there, and has the daemon's say what is known.
func (b *Book) look(s *set, p *pull) {
	if is := p.report.Reason; is != "" && is != p.noted {
		p.noted = is
		b.note(p.order.Namespace, p.order.Daemon, p.order.DaemonUID, &p.report)
	}
	switch {
	case p.leaving, p.pod != nil && !b.isDue(s, b.held):
	case p.pod == nil:
		if !p.made.IsZero() && b.isDue(s, p.made.Add(unseen)) {
			p.made = time.Time{}
			b.retry(s, p)
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
	case is.Reason.Done():
		p.over = true
	case is.Reason != "":
		if p.failing.IsZero() {
			p.failing = b.now
		}
		p.again = b.now.Add(pause)
		return is.Over || b.isDue(s, p.failing.Add(failingFor))
	case is.Over:
		b.retry(s, p)
	default: // after that nobody waits for it
		p.over = b.isDue(s, p.since.Add(s.deadline))
		return p.over
	}
	return true
}

// retry has another pod come in place of one that told nothing, or could not be made, while somebody waits for it.
func (b *Book) retry(s *set, p *pull) {
	if !p.report.Queued { // else it was asked once more meanwhile
		p.over, p.again = !p.report.At.Add(s.deadline).After(b.now), b.now.Add(retryLast)
	}
}

// make has a pod be made, and reports whether it is.
func (b *Book) make(s *set, p *pull) bool {
	spec, err := b.Objects.Spec(p.set, p.order.Revision, p.order.Node)
	if err != nil {
		b.refuse(p, err.Error())
		return false
	}
	if p.report.Queued {
		p.report.Queued, p.report.At = false, b.now
		b.Objects.Retell(p.order.DaemonUID)
	}
	p.making, p.since = true, b.now
	o := p.order
	o.Spec, o.Image, o.Deadline = spec, b.image, s.deadline
	b.jobs = append(b.jobs, Job{Make: o.Pod(), of: o.DaemonUID})
	return true
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
			b.retry(s, p)
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
