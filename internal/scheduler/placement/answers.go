package placement

import (
	"slices"

	"github.com/everynode/everynode/internal/fit"
)

// mostRemembered is for how many sorts of waiting pods the answers of all nodes are kept: up to twenty bytes a node for
// each, 16 MB in all with 50,000 nodes.
const mostRemembered = 16

// answers are what all nodes say to pods that are alike and depend on nothing but the node. They are kept from one
// attempt to the next, of this pod or of others like it: an attempt costs as much as nodes have changed since.
type answers struct {
	pod  *fit.Pod
	seen fit.Moment
	// kinds are all that nodes have said; the first is that the pod fits.
	kinds []kind
	said  []answer // by the place of a node
	// fit are the nodes on which the pod fits, and crowded those which removing lesser pods may help.
	fit, crowded group
	barren       int
}

// kind is one answer and how many nodes give it.
type kind struct {
	failure
	nodes int
}

// answer is what one node says.
type answer struct {
	kind  int32 // an index; 0 also where the node was not asked yet
	at    int32 // where the node is in its group
	group uint8
}

// The groups that an answer can be in.
const (
	inNone uint8 = iota // hopeless, or not asked yet
	inFit
	inCrowded
	inBarren
)

// remember has the answers to pods like this one kept from the next attempt on.
func (p *Placer) remember(pod *fit.Pod) {
	if p.known(pod) == nil {
		most := min(len(p.remembered), mostRemembered-1)
		p.remembered = slices.Insert(p.remembered[:most], 0, &answers{pod: pod})
	}
}

// known returns what is remembered for a pod like this one, nil if nothing is.
func (p *Placer) known(pod *fit.Pod) *answers {
	at := slices.IndexFunc(p.remembered, func(a *answers) bool { return a.pod.Alike(pod) })
	if at < 0 {
		return nil
	}
	a := p.remembered[at]
	copy(p.remembered[1:at+1], p.remembered[:at])
	p.remembered[0] = a
	return a
}

// update asks the nodes that have changed. The question is about the pod that is tried: the one of its sort that came
// first may have got enemies since.
func (a *answers) update(c *fit.Cluster, question *fit.Question) {
	now := c.Now()
	if !now.SamePlaces(a.seen) || a.kinds == nil {
		*a = answers{pod: a.pod, kinds: []kind{{}}}
	}
	if all := len(c.Nodes()); all > len(a.said) {
		a.said = append(a.said, make([]answer, all-len(a.said))...)
	}
	for node := range c.ChangedSince(a.seen) {
		a.forget(node)
		a.take(node, question.First(node, fit.Trial{}))
	}
	a.seen = now
}

// forget takes back what the node said.
func (a *answers) forget(node *fit.Node) {
	said := a.said[node.Place()]
	switch said.group {
	case inFit:
		a.fit.remove(said, a.said)
	case inCrowded:
		a.crowded.remove(said, a.said)
	case inBarren:
		a.barren--
	}
	if said.kind > 0 {
		a.kinds[said.kind].nodes--
	}
	a.said[node.Place()] = answer{}
}

// take takes up what the node says now.
func (a *answers) take(node *fit.Node, reasons []fit.Reason) {
	said := &a.said[node.Place()]
	if len(reasons) == 0 {
		said.group, said.at = inFit, a.fit.add(node)
		return
	}
	f := failureOf(reasons)
	said.kind = a.kindOf(f)
	a.kinds[said.kind].nodes++
	switch {
	case f.hopeless:
	case hasLesser(node, a.pod.Priority):
		said.group, said.at = inCrowded, a.crowded.add(node)
	default:
		said.group = inBarren
		a.barren++
	}
}

// kindOf finds a kind, or a place for it.
func (a *answers) kindOf(f failure) int32 {
	free := int32(len(a.kinds))
	for i := int32(1); i < int32(len(a.kinds)); i++ {
		k := &a.kinds[i]
		switch {
		case k.nodes == 0:
			free = min(free, i)
		case k.rule == f.rule && k.hopeless == f.hopeless && slices.Equal(k.texts, f.texts):
			return i
		}
	}
	if int(free) == len(a.kinds) {
		a.kinds = append(a.kinds, kind{})
	}
	a.kinds[free].failure = f
	return free
}

// tell puts the nodes that do not fit into a diagnosis, which is good until the next update.
func (a *answers) tell(d *Diagnosis) {
	for i := range a.kinds {
		if a.kinds[i].nodes > 0 {
			d.count(a.kinds[i].failure, a.kinds[i].nodes)
		}
	}
	d.crowded, d.barren = slices.Clip(a.crowded.nodes), a.barren
}

func hasLesser(node *fit.Node, priority int32) bool {
	for _, other := range node.Pods {
		if other.Priority < priority {
			return true
		}
	}
	return false
}

// group is a set of nodes.
type group struct{ nodes []*fit.Node }

// add puts a node in and returns where it is.
func (g *group) add(node *fit.Node) int32 {
	g.nodes = append(g.nodes, node)
	return int32(len(g.nodes) - 1)
}

// remove takes out the node of an answer; the last one takes its place.
func (g *group) remove(said answer, all []answer) {
	last := g.nodes[len(g.nodes)-1]
	g.nodes[said.at] = last
	all[last.Place()].at = said.at
	g.nodes = g.nodes[:len(g.nodes)-1]
}
