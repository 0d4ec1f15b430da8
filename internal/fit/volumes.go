package fit

import (
	"slices"

	"github.com/everynode/everynode/internal/fit/volumes"
)

// Unbound says why the pod fits on no node whatever, because of its claims; "" if that is not so.
func (q *Question) Unbound() string {
	if problem := q.claims().Problem; problem != "" {
		return problem
	}
	if asked := q.devices(); asked != nil {
		return asked.Problem()
	}
	return ""
}

func (q *Question) claims() *volumes.Claimed {
	if q.claimed == nil {
		q.claimed = q.cluster.storage.Look(q.pod.withClaims())
	}
	return q.claimed
}

// checkVolumes: volumes that are bound must be in reach of the node, and for each claim that waits for the pod there
// must be one, or somebody who makes one there.
func checkVolumes(q *Question, node *trialNode) []Reason {
	if len(q.pod.claims) == 0 || q.cluster.storage == nil {
		return nil
	}
	c := q.claims()
	if c.Problem != "" {
		return fails(Volumes, c.Problem, "", true)
	}
	s := q.cluster.storage
	for _, key := range c.Alone {
		uses := func(p *Pod) bool { return slices.Contains(p.ClaimKeys(), key) }
		if s.Users(key)+node.difference(uses) > 0 {
			return fails(Volumes, volumes.TextClaimShared, key, !slices.ContainsFunc(podsOf(node.Node), uses))
		}
	}
	there := volumes.Node{Name: node.Name, Labels: node.Labels}
	if text, name := s.OutOfReach(c, there); text != "" {
		return fails(Volumes, text, name, true)
	}
	if _, missing := s.Choose(c, there); missing != "" {
		return fails(Volumes, volumes.TextNone, missing, true)
	}
	return nil
}

func podsOf(node *Node) (out []*Pod) {
	for _, p := range node.Pods {
		out = append(out, p)
	}
	return out
}

// Uses returns which volumes the pod's claims are to get if it gets the node, which it fits; none if they all have
// theirs.
func (q *Question) Uses(node *Node) []volumes.Use {
	if q.cluster.storage == nil {
		return nil
	}
	uses, _ := q.cluster.storage.Choose(q.claims(), volumes.Node{Name: node.Name, Labels: node.Labels})
	return uses
}
