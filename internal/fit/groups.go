package fit

import (
	"maps"
	"slices"
	"strings"

	"github.com/everynode/everynode/internal/fit/podaffinity"
)

// maxGroups is how many groups are kept. Each costs one comparison at every pod that comes or goes; asking for one that
// is not kept costs a walk over all pods.
const maxGroups = 256

// part is one part of the cluster: the nodes on which label key has the value.
type part struct{ key, value string }

// Group counts the pods that all of some terms match, by part of the cluster. Once asked for, it is kept up to date.
type Group struct {
	terms []*podaffinity.Term
	keys  []string // of the terms, each once
	parts map[part]int
	total int    // of all parts
	used  uint64 // when it was last asked for
}

// In returns how many of the group's pods run in the node's part, and false if the node is in none. The key is that of
// one of the group's terms.
func (g *Group) In(node *Node, key string) (int, bool) {
	value, ok := node.Labels[key]
	return g.parts[part{key, value}], ok
}

// repeller is a term of anti-affinity and how many pods with it are in each part.
type repeller struct {
	term  *podaffinity.Term
	pods  int // everywhere, also on nodes that do not exist
	parts map[string]int
}

// index holds what is counted by part of the cluster.
type index struct {
	repelling map[string]*repeller
	groups    map[string]*Group
	asked     uint64
}

func newIndex() index { return index{repelling: map[string]*repeller{}, groups: map[string]*Group{}} }

// Group returns the group of pods that all the terms match. There is at least one term.
func (c *Cluster) Group(terms ...*podaffinity.Term) *Group {
	ids := make([]string, len(terms))
	for i, t := range terms {
		ids[i] = t.ID()
	}
	id := strings.Join(ids, "\x00\x00")
	c.asked++
	g := c.groups[id]
	if g == nil {
		g = c.newGroup(terms)
		c.groups[id] = g
	}
	g.used = c.asked
	return g
}

func (c *Cluster) newGroup(terms []*podaffinity.Term) *Group {
	if len(c.groups) >= maxGroups {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(c.groups)),
			func(a, b string) int { return int(c.groups[a].used) - int(c.groups[b].used) })
		delete(c.groups, oldest)
	}
	g := &Group{terms: terms, parts: map[part]int{}}
	for _, t := range terms {
		if !slices.Contains(g.keys, t.Key()) {
			g.keys = append(g.keys, t.Key())
		}
	}
	for _, node := range c.present {
		for _, pod := range node.Pods {
			if podaffinity.MatchAll(terms, pod.Namespace, pod.Labels, c) {
				g.count(node, 1)
			}
		}
	}
	return g
}

// count adds a pod on the node, or takes it away.
func (g *Group) count(node *Node, change int) {
	for _, key := range g.keys {
		value, ok := node.Labels[key]
		if !ok {
			continue
		}
		g.total += change
		g.parts[part{key, value}] += change
		if g.parts[part{key, value}] == 0 {
			delete(g.parts, part{key, value})
		}
	}
}

// count adds a pod on a node to what is counted by part, or takes it away. Nodes that do not exist are in no part.
func (c *Cluster) count(pod *Pod, node *Node, change int) {
	if !node.exists() {
		return
	}
	for _, t := range pod.repels {
		if value, ok := node.Labels[t.Key()]; ok {
			r := c.repelling[t.ID()]
			r.parts[value] += change
			if r.parts[value] == 0 {
				delete(r.parts, value)
			}
		}
	}
	for _, g := range c.groups {
		if podaffinity.MatchAll(g.terms, pod.Namespace, pod.Labels, c) {
			g.count(node, change)
		}
	}
}

// countAll does it for all pods of a node, whose labels change or which comes or goes.
func (c *Cluster) countAll(node *Node, change int) {
	for _, pod := range node.Pods {
		c.count(pod, node, change)
	}
}

// shareTerms has pods that repel the same share what says so.
func (c *Cluster) shareTerms(pod *Pod) {
	if len(pod.repels) == 0 {
		return
	}
	shared := make([]*podaffinity.Term, len(pod.repels))
	for i, t := range pod.repels {
		r := c.repelling[t.ID()]
		if r == nil {
			r = &repeller{term: t, parts: map[string]int{}}
			c.repelling[t.ID()] = r
		}
		r.pods++
		shared[i] = r.term
	}
	pod.repels = shared
}

// dropTerms takes back shareTerms.
func (c *Cluster) dropTerms(pod *Pod) {
	for _, t := range pod.repels {
		if r := c.repelling[t.ID()]; r.pods == 1 {
			delete(c.repelling, t.ID())
		} else {
			r.pods--
		}
	}
}

// SetNamespace takes over a namespace's labels; DeleteNamespace forgets them.
func (c *Cluster) SetNamespace(name string, labels map[string]string) {
	if known, ok := c.namespaces[name]; !ok || !maps.Equal(known, labels) {
		c.namespaces[name] = labels
		c.forgetByLabels()
	}
}

// DeleteNamespace forgets a namespace.
func (c *Cluster) DeleteNamespace(name string) {
	delete(c.namespaces, name)
	c.forgetByLabels()
}

// forgetByLabels drops the groups whose pods depend on the labels of namespaces.
func (c *Cluster) forgetByLabels() {
	maps.DeleteFunc(c.groups, func(_ string, g *Group) bool {
		return slices.ContainsFunc(g.terms, func(t *podaffinity.Term) bool { return t.ByLabels() })
	})
}

// NamespaceLabels returns the labels of a namespace.
func (c *Cluster) NamespaceLabels(name string) map[string]string { return c.namespaces[name] }
