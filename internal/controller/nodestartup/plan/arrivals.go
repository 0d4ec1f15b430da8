package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// seenApart is how much later than a NodeStartup a node is to be seen so that it came later: they are told of one
// without the other, either of them late.
const seenApart = 30 * time.Second

// Arrivals remembers since when NodeStartups, and nodes that nobody has dealt with, were seen, by the time of who sees
// them. That a node came after a NodeStartup may not show in what the API server wrote: its clock may have been set
// back.
type Arrivals struct {
	startups, nodes map[types.UID]time.Time
}

// Startup takes note of a NodeStartup.
func (a *Arrivals) Startup(uid types.UID, now time.Time) { note(&a.startups, uid, now) }

// Node takes note of a node that was not there when nodes began to be watched.
func (a *Arrivals) Node(uid types.UID, now time.Time) { note(&a.nodes, uid, now) }

func note(in *map[types.UID]time.Time, uid types.UID, now time.Time) {
	if *in == nil {
		*in = map[types.UID]time.Time{}
	}
	if _, seen := (*in)[uid]; !seen {
		(*in)[uid] = now
	}
}

// Forget drops what is gone, or a node that somebody has dealt with.
func (a *Arrivals) Forget(uid types.UID) {
	delete(a.startups, uid)
	delete(a.nodes, uid)
}

// Vouch returns the node, or one like it that is as old as the NodeStartup, if it was seen to come later.
func (a *Arrivals) Vouch(n *corev1.Node, s *v1alpha1.NodeStartup) *corev1.Node {
	if s == nil || !n.CreationTimestamp.Before(&s.CreationTimestamp) {
		return n
	}
	startup, known := a.startups[s.UID]
	came, seen := a.nodes[n.UID]
	if !known || !seen || came.Sub(startup) < seenApart {
		return n
	}
	n = n.DeepCopy()
	n.CreationTimestamp = s.CreationTimestamp
	return n
}
