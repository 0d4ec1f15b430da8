package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/loop/deadline"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// Daemon is how a listed DaemonSet is on a node.
type Daemon struct {
	// Missing tells that there is no such DaemonSet, Elsewhere that it does not run on this node.
	Missing, Elsewhere bool
	// From is from when on its daemon there is available, which may be still to come; zero while nobody knows.
	From time.Time
	// Barred tells that its pods do not tolerate the taint, and nobody adds that: a closed node would never get one.
	Barred bool
	// Kept says which other taint keeps it from coming as yet; "" for none.
	Kept string
}

// Facts is how a listed DaemonSet is on the node that is decided.
type Facts func(types.NamespacedName) Daemon

// Wait is a daemon that a node waits for.
type Wait struct {
	DaemonSet types.NamespacedName
	// Missing tells that there is no such DaemonSet, Kept which taint of the node keeps its daemon from coming.
	Missing bool
	Kept    string
}

// Decision is what is to be done for a node.
type Decision struct {
	// Gate is the taint that the node is to have; nil for none, and then the node is open.
	Gate *corev1.Taint
	// Changed tells that it has another one now.
	Changed bool
	// Waits are the daemons that it waits for, in the order of the groups.
	Waits []Wait
	// Without are the daemons that a timeout has gone on without, just now.
	Without []types.NamespacedName
	// Late tells that the group has had its time, and goes on waiting.
	Late bool
	// Barred are the daemons that a closed node would never get; because of them it opens.
	Barred []types.NamespacedName
	// Again is when to decide again without any news; zero for never.
	Again time.Time
	// Since is when the last daemon that was waited for became available; zero if none was.
	Since time.Time
}

// apart is how far the clocks of those that write gates may be apart. A gate that was put on later than that, since a
// clock was set back, is put on now, as is one without a time, which a kubelet has written.
const apart = time.Minute

// Decide says what a node with this gate is to do under a NodeStartup, nil if there is none any more.
//
// It is at a group. Once nothing of that group and of those before is waited for, the next one begins; after the last
// the node opens. Of groups before the present one those that may be gone on without are not looked at again.
func Decide(s *v1alpha1.NodeStartup, gate *corev1.Taint, facts Facts, now time.Time) Decision {
	place, known := nodestartup.PlaceOf(gate.Value)
	if s == nil || !known || place.Startup != s.Name {
		return Decision{Changed: true}
	}
	if barred := barred(s, facts); len(barred) > 0 && gate.Effect == corev1.TaintEffectNoSchedule {
		return Decision{Changed: true, Barred: barred}
	}
	n := node{groups: s.Spec.Groups, facts: facts, now: now, at: min(place.Group, len(s.Spec.Groups)), began: now}
	began := gate.TimeAdded != nil && gate.TimeAdded.Sub(now) < apart
	if began {
		n.began = gate.TimeAdded.Time
	}
	for !n.waits() {
		if n.at == len(n.groups) {
			n.Changed = true
			return n.Decision
		}
		n.at, n.began = n.at+1, now
	}
	place.Group = n.at
	n.Gate = nodestartup.Gate(place, s.Spec.Gate, n.began)
	if gate.Effect == corev1.TaintEffectPreferNoSchedule {
		n.Gate.Effect = gate.Effect // no node is closed that was not
	}
	n.Changed = n.Gate.Value != gate.Value || n.Gate.Effect != gate.Effect || !began
	return n.Decision
}

// barred are the daemons of all groups that a closed node would never get.
func barred(s *v1alpha1.NodeStartup, facts Facts) (out []types.NamespacedName) {
	for i := range s.Spec.Groups {
		for _, listed := range s.Spec.Groups[i].DaemonSets {
			if name := nodestartup.NameOf(listed); facts(name).Barred {
				out = append(out, name)
			}
		}
	}
	return out
}

// node is one that is being decided, at a group that began at some time.
type node struct {
	Decision
	groups []v1alpha1.StartupGroup
	facts  Facts
	now    time.Time
	at     int // from 1
	began  time.Time
}

// waits reports whether the node waits for something at its group, and takes note of what and until when.
func (n *node) waits() bool {
	n.Waits, n.Again, n.Late, n.Since = nil, time.Time{}, false, time.Time{}
	for i := range n.groups[:n.at-1] {
		if n.groups[i].Then != v1alpha1.ThenOpen {
			n.look(&n.groups[i])
		}
	}
	before := len(n.Waits)
	g := &n.groups[n.at-1]
	n.look(g)
	timeout := nodestartup.TimeoutOf(g)
	if timeout == 0 || len(n.Waits) == before {
		return len(n.Waits) > 0
	}
	end := n.began.Add(timeout)
	switch {
	case end.After(n.now):
		n.Again = deadline.Sooner(n.Again, end)
	case g.Then != v1alpha1.ThenOpen:
		n.Late = true
	case before == 0:
		for _, w := range n.Waits {
			n.Without = append(n.Without, w.DaemonSet)
		}
		n.Waits, n.Again = nil, time.Time{}
	}
	return len(n.Waits) > 0
}

// look takes note of the daemons of a group.
func (n *node) look(g *v1alpha1.StartupGroup) {
	for _, listed := range g.DaemonSets {
		name := nodestartup.NameOf(listed)
		d := n.facts(name)
		switch {
		case d.Elsewhere:
		case d.From.IsZero() || d.From.After(n.now):
			n.Waits = append(n.Waits, Wait{DaemonSet: name, Missing: d.Missing, Kept: d.Kept})
			n.Again = deadline.Sooner(n.Again, d.From)
		case d.From.After(n.Since):
			n.Since = d.From
		}
	}
}
