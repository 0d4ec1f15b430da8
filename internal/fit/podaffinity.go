package fit

import (
	"github.com/everynode/everynode/internal/fit/podaffinity"
)

// What a node is reported with that fails for other pods near it.
const (
	TextAffinity     = "node(s) didn't match pod affinity rules"
	TextAntiAffinity = "node(s) didn't match pod anti-affinity rules"
	TextExisting     = "node(s) didn't satisfy existing pods anti-affinity rules"
)

// neighbours is what a pod asks of the pods near it, and they of it.
type neighbours struct {
	// attract are the terms of which one pod must match all, near their group; nil if there are none.
	attract  []*podaffinity.Term
	near     *Group
	readable bool
	// itself: the pod matches its own terms.
	itself bool
	// repel are the pods that it does not want near it: one group for each term.
	repel []*Group
	// refused are the terms of others that it matches.
	refused []*repeller
}

// checkPodAffinity: a pod must be, or must not be, in the same part of the cluster as certain other pods. All terms of
// other pods are looked at, but each once, however many pods have it.
func checkPodAffinity(q *Question, node *trialNode) []Reason {
	if q.near == nil {
		q.near = q.neighbours()
	}
	var reasons []Reason
	n := q.near
	if !n.readable || n.near != nil && !q.attracted(node) {
		reasons = append(reasons, Reason{Rule: PodAffinity, Text: TextAffinity, Hopeless: true})
	}
	if key, repelled := q.repelled(node); repelled || !q.pod.readable {
		reasons = append(reasons, Reason{Rule: PodAffinity, Text: TextAntiAffinity, About: key,
			Hopeless: !q.pod.readable})
	}
	if key, refused := q.refused(node); refused {
		reasons = append(reasons, Reason{Rule: PodAffinity, Text: TextExisting, About: key})
	}
	return reasons
}

func (q *Question) neighbours() *neighbours {
	n := &neighbours{}
	n.attract, n.readable = podaffinity.ParseAll(requiredAffinity(q.spec()), q.pod.Namespace)
	if len(n.attract) > 0 {
		n.near = q.cluster.Group(n.attract...)
		n.itself = podaffinity.MatchAll(n.attract, q.pod.Namespace, q.pod.Labels, q.cluster)
	}
	for _, t := range q.pod.repels {
		n.repel = append(n.repel, q.cluster.Group(t))
	}
	for _, r := range q.cluster.repelling {
		if r.term.Matches(q.pod.Namespace, q.pod.Labels, q.cluster) {
			n.refused = append(n.refused, r)
		}
	}
	return n
}

// attracted reports whether a pod that matches all terms is in the node's part for each of them. If there is none
// anywhere and the pod would be one itself, it is the first of its kind and may go wherever there are parts.
func (q *Question) attracted(node *trialNode) bool {
	g := q.near.near
	change := node.difference(func(other *Pod) bool {
		return podaffinity.MatchAll(q.near.attract, other.Namespace, other.Labels, q.cluster)
	})
	total, inAll := g.total, true
	for _, key := range g.keys {
		count, inPart := g.In(node.Node, key)
		if !inPart {
			return false
		}
		total += change
		inAll = inAll && count+change > 0
	}
	return inAll || total == 0 && q.near.itself
}

func (q *Question) repelled(node *trialNode) (key string, repelled bool) {
	for i, t := range q.pod.repels {
		count, inPart := q.near.repel[i].In(node.Node, t.Key())
		if inPart && count+node.difference(func(other *Pod) bool {
			return t.Matches(other.Namespace, other.Labels,
				q.cluster)
		}) > 0 {
			return t.Key(), true
		}
	}
	return "", false
}

// refused reports whether the node is in a part where a pod runs that does not want this one near it.
func (q *Question) refused(node *trialNode) (key string, refused bool) {
	for _, r := range q.near.refused {
		value, inPart := node.Labels[r.term.Key()]
		if !inPart || r.parts[value] == 0 {
			continue
		}
		left := 0
		for _, pod := range node.removed {
			for _, t := range pod.repels {
				if t.ID() == r.term.ID() {
					left++
				}
			}
		}
		if r.parts[value] > left {
			return r.term.Key(), true
		}
	}
	for _, pod := range node.added {
		for _, t := range pod.repels {
			if _, inPart := node.Labels[t.Key()]; inPart && t.Matches(q.pod.Namespace, q.pod.Labels, q.cluster) {
				return t.Key(), true
			}
		}
	}
	return "", false
}
