package row

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/failing"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/podname"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// work is what a cell wants done; a row keeps a set of cells for each kind. It is all that
// a cell is sorted by: why nothing is done where nothing is says because, when asked.
type work uint8

const (
	workNone    work = iota
	workRemove       // delete pods, now
	workSunset       // delete the old pod once enough others are available
	workCreate       // create a pod, now
	workReplace      // delete the old pod when maxUnavailable allows
	workSurge        // create a second pod when maxSurge allows
	workResize       // give the pod other amounts when maxSurge allows
	workFetch        // ask the node to fetch images, now
	workCount
)

// setback spaces the tries of what keeps failing. Of cells, those with fewer failures go first.
type setback struct {
	failures int
	until    time.Time // no try before that
}

func (s *setback) failed(now time.Time, cfg *Config) {
	s.failures++
	s.until = now.Add(backoff(cfg.RetryDelay, cfg.MaxRetryDelay, s.failures))
}

// creation is a pod on its way: from the moment its action leaves Ready until it is both answered and seen. Names
// return, so the answer's UID decides which pod it is.
type creation struct {
	name     string // "" for none
	uid      types.UID
	answered bool
	until    time.Time
	// seen says that a pod of the name has come, left which pod went last.
	seen bool
	left types.UID
}

// saw takes note of a pod in the cell.
func (c *creation) saw(p *fact.Pod) {
	c.seen = c.seen || p.Name == c.name
	if c.answered && c.uid == p.UID {
		*c = creation{}
	}
}

// cell is one (DaemonSet, Node) pair. It exists while the node should run the daemon or a pod is there.
type cell struct {
	column *Column // nil while there is no such Node
	node   string

	// newest is what the placement rules of the newest revision say, eligibility what those that count for the node do.
	newest, eligibility placement.Eligibility
	untold              bool   // whether the row has it on its list
	audited             uint8  // the audit that has counted it last
	pods                []*Pod // in the order of older

	verdict verdict
	todo    *todo // if the verdict says that there is work
	timer   deadline.Timer[*cell]

	// Most cells have nothing under way and nothing to remember: they share nothing. Who writes asks for own before.
	*tries
}

// tries are what was tried in a cell, and how it went.
type tries struct {
	creating creation
	setback  setback // of creations
	// What the API said to the last one, if it refused it for good, and which revision that was.
	refused, ofWhich string
	// taken is how many names were found to be other pods'.
	taken int
	// unanswered is the name of a pod whose creation got no answer. Until it is seen the next try must meet it.
	unanswered      string
	unansweredUntil time.Time

	failures  failing.Backoff
	deletions setback
	fetches   setback // of asking the node to fetch images

	told string // why the node cannot take the pod, as last told
}

// nothing is what cells share. It is never written to.
var nothing = &tries{}

// own are the cell's tries, to be written to.
func (c *cell) own() *tries {
	if c.tries == nothing {
		c.tries = &tries{}
	}
	return c.tries
}

// wake is when the verdict may change by time alone; zero means never.
func (c *cell) wake() time.Time {
	if !c.timer.Armed() {
		return time.Time{}
	}
	return c.timer.At()
}

func (c *cell) insert(p *Pod) {
	p.cell = c
	i, _ := slices.BinarySearchFunc(c.pods, p, func(a, b *Pod) int { return fact.Older(&a.info, &b.info) })
	c.pods = slices.Insert(c.pods, i, p)
	if c.creating.name != "" {
		c.creating.saw(&p.info)
	}
	if p.info.Name == c.unanswered {
		c.answer()
	}
}

// answer: the creation that was last in doubt is known to be done.
func (c *cell) answer() {
	c.own()
	c.setback, c.taken, c.unanswered, c.unansweredUntil, c.refused = setback{}, 0, "", time.Time{}, ""
}

// pod returns a pod of the cell, or nil.
func (c *cell) pod(uid types.UID) *Pod {
	for _, p := range c.pods {
		if p.info.UID == uid {
			return p
		}
	}
	return nil
}

func (c *cell) remove(p *Pod) {
	c.pods = slices.DeleteFunc(c.pods, func(o *Pod) bool { return o == p })
	p.cell = nil
}

// expire drops expectations that were never met. A pod that was created and not
// seen may be there: the next try must meet it.
func (c *cell) expire(now time.Time, keepName time.Duration) {
	c.own()
	if !c.unansweredUntil.After(now) {
		c.unanswered, c.unansweredUntil = "", time.Time{}
	}
	if c.creating.name != "" && !c.creating.until.After(now) {
		if c.creating.answered {
			c.unanswered, c.unansweredUntil = c.creating.name, now.Add(keepName)
		}
		c.creating = creation{}
	}
	for _, p := range c.pods {
		for _, until := range []*time.Time{&p.doomedUntil, &p.unsureUntil, &p.pointedUntil, &p.fetchUntil} {
			if !until.After(now) {
				*until = time.Time{}
			}
		}
	}
}

// expectation returns when the next expectation runs out; zero means none.
func (c *cell) expectation() time.Time {
	at := deadline.Sooner(c.creating.until, c.unansweredUntil)
	for _, p := range c.pods {
		for _, until := range []time.Time{p.doomedUntil, p.unsureUntil, p.pointedUntil, p.fetchUntil} {
			at = deadline.Sooner(at, until)
		}
	}
	return at
}

// forgettable reports whether nothing would be lost with the cell.
func (c *cell) forgettable() bool {
	return !c.verdict.counts.has(desired) && len(c.pods) == 0 && c.creating.name == "" && c.unanswered == ""
}

// freeName is the first of the cell's names that no pod in it has. So the same facts give the same name in any
// process, and a creation that is repeated meets its own pod.
func (r *Row) freeName(c *cell) string {
	for attempt := c.taken; ; attempt++ {
		name := podname.Of(r.info.Name, r.info.UID, c.node, attempt)
		if !slices.ContainsFunc(c.pods, func(p *Pod) bool { return p.info.Name == name }) {
			return name
		}
	}
}

// Pod is one that a row has, or whose row is not known.
type Pod struct {
	info fact.Pod
	cell *cell // nil while it has no node or no row
	// doomedUntil is set from when its deletion leaves Ready: it counts as terminating whatever its last event said.
	doomedUntil time.Time
	// pointedUntil is set from the moment it was to be pointed at another content, or resized, until it is seen to be: it
	// says when that was asked for, which asked is. What its revision is called says nothing, since one that comes
	// meanwhile may have the name changed, nor what another process has asked for. Unpointable is what it cannot be given.
	pointedUntil, asked time.Time
	unpointable         string
	// fetchUntil is set from the moment its node was to be asked for images, or no longer, until that is seen.
	fetchUntil time.Time
	// unsureUntil is set while a deletion, or what points it at other content, got no answer: it may be done. The
	// pod counts as live, so that it is tried again, and as not up.
	unsureUntil time.Time
	// readyFrom is when it became ready, but not after we first saw it, and not before
	// it was made: the node's clock may be ahead of ours, or behind.
	readyFrom time.Time
	// mountedFrom is when its volumes came to show what they were pointed at, held in the same way; pointedFrom
	// when it was first seen to be, or seen no longer to say that they show it.
	mountedFrom, pointedFrom time.Time
	// fellFrom is when it was first seen not to be ready, after it last was.
	fellFrom time.Time
}

// Info is what was last told of the pod.
func (p *Pod) Info() *fact.Pod { return &p.info }

// Forget drops what was in flight for the pod.
func (p *Pod) Forget() {
	p.doomedUntil, p.unsureUntil, p.pointedUntil, p.fetchUntil = time.Time{}, time.Time{}, time.Time{}, time.Time{}
}

// StaysIn reports whether a pod that is in a cell stays there with the new state.
func (p *Pod) StaysIn(info *fact.Pod) bool {
	return p.cell != nil && info.Owner == p.info.Owner && info.Node == p.info.Node
}

// Update takes a new state of the pod in.
func (p *Pod) Update(info fact.Pod, now time.Time) {
	if !p.info.Ready || p.info.ReadySince != info.ReadySince {
		from := info.ReadySince
		if !from.IsZero() && from.Before(info.Created) {
			from = info.Created
		}
		p.readyFrom = deadline.Past(from, now)
	}
	if !info.Ready && (p.info.Ready || p.info.UID == "") {
		p.fellFrom = now
	}
	p.point(&info, now)
	if p.info.Fetch.Revision != info.Fetch.Revision || !p.info.Fetch.At.Equal(info.Fetch.At) {
		p.fetchUntil = time.Time{}
	}
	if p.info.UID == info.UID && p.info.Pointed.Equal(info.Pointed) {
		info.Before = p.info.Before // it was written when the pod was made, and not since
	}
	p.info = info
	if info.Terminating {
		p.Forget()
	}
}

// point takes in what the pod's volumes were pointed at.
func (p *Pod) point(info *fact.Pod, now time.Time) {
	again := !p.info.Pointed.Equal(info.Pointed)
	if again && info.Pointed.Equal(p.asked) {
		p.pointedUntil, p.unsureUntil = time.Time{}, time.Time{}
	}
	if again || !p.info.Mounted.IsZero() && info.Mounted.IsZero() {
		p.pointedFrom = now
	}
	if again || !p.info.Mounted.Equal(info.Mounted) {
		p.mountedFrom = deadline.Past(info.Mounted, now)
		if info.Resized && p.info.Mounted.IsZero() && !again { // nobody says since when
			p.mountedFrom = now
		}
	}
}

// silent reports whether its node, in order since back, has not said for long what its volumes show, and from when.
func (p *Pod) silent(now, back time.Time) (silent bool, from time.Time) {
	if p.info.Pointed.IsZero() || !p.info.Mounted.IsZero() || p.info.Trouble != "" || p.info.Resized {
		return false, time.Time{}
	}
	from = deadline.Later(p.pointedFrom, back).Add(mountPatience)
	return !from.After(now), from
}

// mountPatience is how long an agent has to say that a pod's volumes show what they were pointed at: one that is
// older never does.
const mountPatience = 30 * time.Second
