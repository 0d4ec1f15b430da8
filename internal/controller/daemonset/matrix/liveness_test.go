package matrix

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// illness is what keeps going wrong on a node.
type illness uint8

const (
	healthy         illness = iota
	refusesCreation         // an admission policy, or a quota
	hangsCreation           // no answer to a creation, ever
	namesTaken              // whatever name is tried is another pod's, for a while
	refusesDeletion
	hangsDeletion // no answer to a deletion, ever
	illnesses
)

// noAnswer is when a worker gives up.
const noAnswer = time.Minute

// clockwork is an API and agents that take their time, always the same.
type clockwork struct {
	m      *Matrix
	now    time.Time
	agenda []appointment
	ill    map[string]illness
	pods   map[types.UID]fact.Pod
	made   int
	taken  map[string]int
	status fact.Status
}

type appointment struct {
	at time.Time
	do func()
}

func newClockwork(nodes []string, ill map[string]illness) *clockwork {
	c := &clockwork{m: New(row.Config{}), now: noon, ill: ill, pods: map[types.UID]fact.Pod{}, taken: map[string]int{}}
	c.m.Step(fact.Now{Time: c.now})
	for _, n := range nodes {
		c.m.Step(fact.Node{Name: n})
	}
	return c
}

func (c *clockwork) after(d time.Duration, do func()) {
	at := c.now.Add(d)
	i, _ := slices.BinarySearchFunc(c.agenda, at, func(a appointment, t time.Time) int {
		if a.at.After(t) {
			return 1
		}
		return -1
	})
	c.agenda = slices.Insert(c.agenda, i, appointment{at, do})
}

// turn does what is due and returns false when nothing is.
func (c *clockwork) turn() bool {
	for _, a := range c.m.Ready() {
		c.act(a)
	}
	at, ok := c.m.NextTick()
	if len(c.agenda) > 0 && (!ok || c.agenda[0].at.Before(at)) {
		at, ok = c.agenda[0].at, true
	}
	if !ok {
		return false
	}
	if at.After(c.now) {
		c.now = at
	}
	c.m.Step(fact.Now{Time: c.now})
	for len(c.agenda) > 0 && !c.agenda[0].at.After(c.now) {
		a := c.agenda[0]
		c.agenda = c.agenda[1:]
		a.do()
	}
	return true
}

func (c *clockwork) act(a action.Action) {
	const roundTrip = 10 * time.Millisecond
	switch a := a.(type) {
	case *action.CreatePod:
		switch c.ill[a.Node] {
		case refusesCreation:
			c.after(roundTrip, func() { c.m.Step(action.Answer{Action: a, Outcome: action.Failed}) })
		case hangsCreation:
			c.after(noAnswer, func() { c.m.Step(action.Answer{Action: a, Outcome: action.Unknown}) })
		case namesTaken:
			c.taken[a.Node]++
			c.after(roundTrip, func() { c.m.Step(action.Answer{Action: a, Outcome: action.NameTaken}) })
		default:
			c.after(roundTrip, func() { c.create(a) })
		}
	case *action.DeletePod:
		switch c.ill[a.Node] {
		case refusesDeletion:
			c.after(roundTrip, func() { c.m.Step(action.Answer{Action: a, Outcome: action.Failed}) })
		case hangsDeletion:
			c.after(noAnswer, func() { c.m.Step(action.Answer{Action: a, Outcome: action.Unknown}) })
		default:
			c.after(roundTrip, func() { c.remove(a) })
		}
	case *action.UpdateStatus:
		c.after(roundTrip, func() { c.status = a.Status; c.m.Step(action.Answer{Action: a, Outcome: action.OK}) })
	}
}

func (c *clockwork) create(a *action.CreatePod) {
	c.made++
	p := fact.Pod{UID: types.UID(fmt.Sprint("pod-", c.made)), Name: a.PodName, Owner: a.UID, Node: a.Node, Revision: a.Revision, Before: a.Before, Created: c.now}
	c.set(p)
	c.m.Step(action.Answer{Action: a, Pod: p.UID})
	c.after(time.Second, func() {
		if p, there := c.pods[p.UID]; there {
			p.Bound, p.Ready, p.ReadySince = true, true, c.now
			c.set(p)
		}
	})
}

func (c *clockwork) remove(a *action.DeletePod) {
	if p, there := c.pods[a.PodUID]; there {
		p.Terminating = true
		c.set(p)
		c.after(time.Second, func() { delete(c.pods, p.UID); c.m.Step(fact.PodGone(p.UID)) })
	}
	c.m.Step(action.Answer{Action: a, Outcome: action.OK})
}

func (c *clockwork) set(p fact.Pod) { c.pods[p.UID] = p; c.m.Step(p) }

// until turns until the condition holds on every node, and returns how long it took.
func (c *clockwork) until(t *rapid.T, nodes []string, holds func(here []fact.Pod) bool) time.Duration {
	start := c.now
	for range 200000 {
		if !slices.ContainsFunc(nodes, func(n string) bool { return !holds(c.on(n)) }) {
			return c.now.Sub(start)
		}
		if !c.turn() || c.now.Sub(start) > 24*time.Hour {
			break
		}
	}
	t.Fatalf("after %s it has not come to that:\n%s", c.now.Sub(start), c.m.Dump())
	return 0
}

func (c *clockwork) on(node string) (out []fact.Pod) {
	for _, p := range c.pods {
		if p.Node == node {
			out = append(out, p)
		}
	}
	return out
}

// trial is a DaemonSet's life on some nodes, of which some are ill.
type trial struct {
	nodes    []string
	ill      map[string]illness
	strategy func(spare int) fact.Strategy
}

// times are how long the healthy nodes took to get their first pod, to get the
// next revision's, and to lose it when they were no longer wanted. The ill nodes
// may use up a share of the budget, so the others get that on top.
func (tr trial) times(t *rapid.T, cured bool) (out []time.Duration) {
	var well []string
	for _, n := range tr.nodes {
		if tr.ill[n] == healthy {
			well = append(well, n)
		}
	}
	c := newClockwork(tr.nodes, map[string]illness{})
	if !cured {
		c.ill = tr.ill
	}
	spec := corev1.PodSpec{}
	info := fact.DaemonSet{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "a",
		Placement: placement.Compile(&spec), Strategy: tr.strategy(len(c.ill))}
	upToDate := func(here []fact.Pod) bool {
		return len(here) == 1 && here[0].Ready && here[0].Revision == info.Revision && !here[0].Terminating
	}
	c.m.Step(info)
	out = append(out, c.until(t, well, upToDate))

	c.ill = map[string]illness{}
	c.until(t, tr.nodes, upToDate)
	if !cured {
		c.ill = tr.ill
	}
	info.Generation, info.Revision = 2, "b"
	c.m.Step(info)
	out = append(out, c.until(t, well, upToDate))

	spec.NodeSelector = map[string]string{"no": "where"}
	info.Generation, info.Placement = 3, placement.Compile(&spec)
	c.m.Step(info)
	return append(out, c.until(t, well, func(here []fact.Pod) bool { return len(here) == 0 }))
}

// Whatever keeps failing for some nodes, all others are served within the time
// that they would be without it.
func TestNoNodeHoldsUpAnother(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := trial{ill: map[string]illness{}}
		for i := range rapid.IntRange(4, 40).Draw(t, "nodes") {
			tr.nodes = append(tr.nodes, fmt.Sprintf("n%02d", i))
		}
		for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(tr.nodes), 1, 3, rapid.ID[string]).Draw(t, "ill") {
			tr.ill[n] = illness(rapid.IntRange(int(refusesCreation), int(illnesses)-1).Draw(t, "illness"))
		}
		budget, surge := rapid.IntRange(1, 5).Draw(t, "budget"), rapid.Bool().Draw(t, "surge")
		tr.strategy = func(spare int) fact.Strategy {
			if surge {
				return rollingUpdate("0", fmt.Sprint(budget+spare))
			}
			return rollingUpdate(fmt.Sprint(budget+spare), "0")
		}
		// Each of three nodes that are ill may hold up the others' slow start for a second.
		const moment = 3*time.Second + 100*time.Millisecond
		want, got := tr.times(t, true), tr.times(t, false)
		for i, what := range []string{"the first pods", "the next revision", "the end"} {
			if got[i] > want[i]+moment {
				t.Errorf("%s took %s, and %s with %v", what, want[i], got[i], tr.ill)
			}
		}
	})
}
