// Package fetching decides when a node is asked for the images of the target before its daemon is taken away, for how
// long others wait for its answer, and whose fault it is when there is none to be had. Each node has its Node, and the
// step under way its Gate. Neither knows of the other.
package fetching

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/controller/daemonset/course/words"
	"github.com/everynode/everynode/internal/loop/deadline"
)

// lasting is how long a failure must be seen before it counts: a registry restarts, and an image may be pushed a
// moment later than the template that names it.
const lasting = 30 * time.Second

// Node is what is remembered of one node. Both times are by this process' clock.
type Node struct {
	// asked is since when it is, or could be, asked for the images of the target; failed since when it says that it
	// cannot have them.
	asked, failed time.Time
	// target is the revision that both are about.
	target string
}

// Input is all that follows is about.
type Input struct {
	Now time.Time
	// Wanted tells that the node is to have the images of the target; May that it may be asked now.
	Wanted, May bool
	Target      string
	// Since is when the evidence about the target begins: older answers are none.
	Since time.Time
	// Says is what the node does.
	Says fetch.Report
	// Free tells that nobody waits for the node's answer, since it has no daemon to lose.
	Free bool
	// Foretells tells that the time of a request is believed. Who was not asked while his step had Begun, though he could
	// be, could be since Opened.
	Foretells, Begun bool
	Opened           time.Time
	// ByPods tells that pods ask nodes, a few at a time: one that is not asked waits for its turn to be.
	ByPods   bool
	Deadline time.Duration
}

// Look finds out where the node is.
func (n *Node) Look(in *Input) (out standing.Fetching) {
	if !in.Wanted {
		*n = Node{}
		return out
	}
	if n.target != in.Target {
		*n = Node{target: in.Target}
	}
	asked := in.asked()
	out.Wish = standing.Keep
	if !asked && in.May {
		out.Wish = standing.Ask
	}
	out.Queued = asked && in.Says.Queued || out.Wish == standing.Ask && in.ByPods
	says := fetch.Report{}
	if asked {
		says = in.Says
	}
	n.remember(in, &says, asked, out.Queued)
	out.Why = says.Why
	switch {
	case says.Reason.Done():
		out.Images = standing.HasImages
	case says.Reason != "":
		n.fault(in, &out)
	default:
		out.Images = standing.Awaited
		if !n.asked.IsZero() {
			out.Until = n.asked.Add(in.Deadline)
		}
	}
	n.give(in, &out)
	return out
}

// give has nobody wait for what is past its time, or has no daemon to lose.
func (n *Node) give(in *Input, out *standing.Fetching) {
	switch {
	case out.Images != standing.Awaited:
	case standing.IsPast(out.Until, in.Now), in.Free && n.failed.IsZero():
		out.Images, out.Until = standing.NotAwaited, time.Time{}
	case in.Free: // until its failure has lasted
		out.Images = standing.NotAwaited
	}
}

// asked reports whether the node was asked for the images of the target, since the evidence about it begins.
func (in *Input) asked() bool { return in.Says.Revision == in.Target && !in.Says.At.Before(in.Since) }

// remember keeps since when the node is asked, and fails. Who starts again waits for it again: the time of a request
// is by another process' clock, which may have been behind.
func (n *Node) remember(in *Input, says *fetch.Report, asked, queued bool) {
	switch {
	case !asked && !in.May, queued:
		n.asked = time.Time{} // nobody could ask it: its time begins when somebody can
	case n.asked.IsZero():
		n.asked = in.askedSince(asked)
	}
	switch {
	case says.Reason == "" || says.Reason.Done():
		n.failed = time.Time{}
	case !n.failed.IsZero():
	case in.Foretells && !says.Answered.IsZero() && says.Answered.Before(in.Now):
		n.failed = says.Answered
	default:
		n.failed = in.Now
	}
}

// askedSince is since when a node is asked, or could be, of which that is not known yet.
func (in *Input) askedSince(asked bool) time.Time {
	switch {
	case in.Foretells && asked:
		return believed(in.Says.At, in.Now)
	case in.Foretells && in.Begun:
		return believed(deadline.Later(in.Opened, in.Since), in.Now)
	}
	return in.Now
}

// believed is a time that somebody has written; now if there is none, or it is still to come.
func believed(at, now time.Time) time.Time {
	if at.IsZero() || at.After(now) {
		return now
	}
	return at
}

// fault says whose fault it is that the node cannot have the images: nobody's until that has lasted.
func (n *Node) fault(in *Input, out *standing.Fetching) {
	lasts := n.failed.Add(min(lasting, in.Deadline))
	switch {
	case lasts.After(in.Now):
		out.Images, out.Until = standing.Awaited, lasts
	case in.Says.Reason.Own():
		out.Images = standing.NodeCannot
	default:
		out.Images = standing.NobodyCan
	}
}

// Words says for people where a node is that does not have the images of the target.
func Words(f *standing.Fetching, target string, canFetch bool) string {
	of := "the images of revision " + target
	switch {
	case f.Images == standing.NodeCannot:
		return "it cannot fetch " + of + words.Colon(f.Why)
	case f.Why != "":
		return "it tries to fetch " + of + words.Colon(f.Why)
	case f.Queued:
		return "it is asked for " + of + " once fewer others are"
	case f.Until.IsZero():
		return "it is not asked for " + of + " while nothing may begin"
	case f.Wish == standing.Ask && !canFetch:
		return "its agent does not say that it can fetch images; it is waited for until " + words.Clock(f.Until)
	}
	return "it fetches " + of + ", and is waited for until " + words.Clock(f.Until)
}

// AtOnce is how many nodes pods may ask at a time: as many as a step may have without their daemon, by its own limit or
// by that of the DaemonSet, own.
func AtOnce(wave *rolloutpolicy.Wave, nodes, own int) int {
	if wave.MaxUnavailable == nil {
		return own
	}
	return max(wave.MaxUnavailable.Of(nodes), 1)
}

// Pods tells that pods ask nodes for images, a few at a time, and what hinders these; "" for nothing.
type Pods struct {
	Ask      bool
	Hindered string
}

// Status is what a rollout says of fetching by a policy: while nodes are to change, what hinders that, pods or others;
// nil for nothing.
func (p *Pods) Status(by *rolloutpolicy.Policy, changing bool, hinders string) *v1alpha1.FetchStatus {
	is := v1alpha1.FetchStatus{ByPods: p.Ask}
	if changing {
		is.Message = cmp.Or(hinders, p.Hindered)
	}
	if is == (v1alpha1.FetchStatus{}) || !by.Fetches() {
		return nil
	}
	return &is
}

// Hindrance says for people what hinders that nodes have all images before their turn: that nobody asks them, that so
// many cannot be asked, or that the template has so many more images than one can be asked for. "" for nothing.
func Hindrance(asks bool, unasked, more int) string {
	if !asks {
		return v1alpha1.NoFetch
	}
	var all []string
	if unasked > 0 {
		all = append(all, "the agents of "+words.Nodes(unasked)+
			" do not say that they can fetch images; each is waited for until its deadline")
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("the template has %d images, and nodes fetch the first %d; its pods pull the others",
			fetch.MaxImages+more, fetch.MaxImages))
	}
	return strings.Join(all, "; ")
}

// Gate keeps the nodes of the step under way together: none of them changes before all have answered, or were waited
// for long enough. Once it is open it stays open, since who comes later waits for himself alone.
type Gate[Step comparable] struct {
	step  Step
	since time.Time
	// from is since when it is waited, not counting while nothing may begin.
	from time.Time
	open bool
	// ahead: all nodes of the step are changed, and those of next may be asked.
	ahead bool
	next  Step
}

// Look takes in where the step is that began then: how many of its nodes are awaited, whether nothing may begin, and
// for how long a node is waited for. Who foretells believes since when.
func (g *Gate[Step]) Look(step Step, since, now time.Time, awaited int, stands bool, patience time.Duration,
	foretells bool) {
	if g.step != step || !g.since.Equal(since) || g.from.IsZero() {
		*g = Gate[Step]{step: step, since: since, from: now}
		if foretells {
			g.from = believed(since, now)
		}
	}
	if stands {
		g.from = now
	}
	// Nodes that come into the step one after another could keep all others waiting.
	g.open = g.open || awaited == 0 || !g.from.Add(2*patience).After(now)
}

// Shut reports whether nodes of the step wait for others of it.
func (g *Gate[Step]) Shut(step Step) bool { return g.step == step && !g.open && !g.from.IsZero() }

// LookAhead lets the nodes of the next step be asked from now on, IsAhead reports whether that was done.
func (g *Gate[Step]) LookAhead(next Step) { g.ahead, g.next = true, next }

// IsAhead reports whether nodes of the next step may be asked.
func (g *Gate[Step]) IsAhead() bool { return g.ahead }

// Next is the step whose nodes may be asked.
func (g *Gate[Step]) Next() Step { return g.next }

// MayFetch reports whether nodes of the step, which has not begun, may be asked.
func (g *Gate[Step]) MayFetch(step Step) bool { return g.ahead && g.next == step }
