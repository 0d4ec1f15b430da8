package graph

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Action is what an object needs from the garbage collector now.
type Action uint8

// The actions. Each Decision gives the reason for its action.
const (
	// Keep leaves the object alone.
	Keep Action = iota
	// Verify asks for a live read of the identities in Decision.Verify, then for another decision.
	Verify
	// Strip removes the references to Decision.Owners and keeps the object.
	Strip
	// Delete deletes the object with Decision.Policy.
	Delete
	// FinishForeground removes the finalizer foregroundDeletion: nothing blocks the object any longer.
	FinishForeground
)

// String is the action's name.
func (a Action) String() string {
	return [...]string{"keep", "verify", "strip", "delete", "finish-foreground"}[a]
}

// Decision is one action on one object with its reason.
type Decision struct {
	Action Action
	Reason string
	// Object is the state that the decision was made on. A write must carry its UID
	// and, where the reason could be undone by an edit, its ResourceVersion.
	Object Object
	// Verify names the owners whose existence is not known, sorted.
	Verify []Identity
	// Owners are the references to strip.
	Owners []types.UID
	// Policy is how to delete.
	Policy metav1.DeletionPropagation
	// Unblock asks to clear blockOwnerDeletion on the object's references before
	// it is deleted: it waits for something that waits for it.
	Unblock bool
}

type refState uint8

const (
	refSolid        refState = iota // the owner exists
	refWaiting                      // the owner waits in foreground deletion for its dependents
	refAbsent                       // the owner is proven not to exist
	refUnverified                   // nobody knows yet
	refUnresolvable                 // nobody can know: kind not served, or namespaced owner of a cluster-scoped object
)

// resolve gives the coordinates that a reference means, seen from its dependent.
func (g *Graph) resolve(dependent Identity, ref *metav1.OwnerReference) (Identity, bool) {
	id := Identity{APIVersion: g.shown(ref.APIVersion, ref.Kind), Kind: ref.Kind, Name: ref.Name, UID: ref.UID}
	switch g.scope(ref.APIVersion, ref.Kind) {
	case ScopeCluster:
		return id, true
	case ScopeNamespaced:
		id.Namespace = dependent.Namespace
		return id, dependent.Namespace != ""
	default:
		id.Namespace = dependent.Namespace
		return id, false
	}
}

func (g *Graph) state(dependent Identity, ref *metav1.OwnerReference) (refState, Identity) {
	id, ok := g.resolve(dependent, ref)
	owner := g.nodes[ref.UID]
	if !ok {
		if owner != nil && owner.presence == gone && g.scope(ref.APIVersion, ref.Kind) == ScopeUnknown &&
			wasMeant(owner.id, dependent, ref) {
			return refAbsent, id // its deletion was seen while the kind was served
		}
		return refUnresolvable, id
	}
	if owner == nil {
		return refUnverified, id
	}
	if owner.presence == gone {
		return refAbsent, id
	}
	if _, absent := owner.absent[id]; absent {
		return refAbsent, id
	}
	if owner.presence != observed || owner.id != id {
		return refUnverified, id
	}
	if owner.waiting() {
		return refWaiting, id
	}
	return refSolid, id
}

// wasMeant reports whether a reference, whose kind is not served now, meant this object when it was.
func wasMeant(owner, dependent Identity, ref *metav1.OwnerReference) bool {
	group := func(apiVersion string) string {
		v, _ := schema.ParseGroupVersion(apiVersion) // what is no version has no group, and is no object's
		return v.Group
	}
	return owner.Kind == ref.Kind && owner.Name == ref.Name && group(owner.APIVersion) == group(ref.APIVersion) &&
		(owner.Namespace == "" || owner.Namespace == dependent.Namespace)
}

// Decide tells what the object with this UID needs, by what the graph knows now.
func (g *Graph) Decide(uid types.UID) Decision {
	n := g.nodes[uid]
	switch {
	case n == nil || n.presence == gone:
		return Decision{Action: Keep, Reason: "the object is gone"}
	case n.presence == virtual:
		return g.decideVirtual(n)
	default:
		return g.DecideLive(n.object())
	}
}

// DecideLive is Decide for a state of the object that was read live and may be
// newer than what the graph was told.
func (g *Graph) DecideLive(o Object) Decision {
	keep := func(reason string) Decision { return Decision{Action: Keep, Reason: reason, Object: o} }
	if o.Deleting {
		if !o.Foreground {
			return keep("already being deleted")
		}
		if g.blocked(o.UID) {
			return keep("waits for its dependents' deletion")
		}
		return Decision{Action: FinishForeground, Reason: "no dependent blocks its deletion", Object: o}
	}
	if len(o.Owners) == 0 {
		return keep("has no owner")
	}
	refs := g.classify(o)
	switch {
	case refs.unresolvable:
		return keep("an owner's kind is not served or cannot own it")
	case len(refs.unverified) > 0:
		return Decision{Action: Verify, Reason: "an owner has not been seen", Object: o, Verify: refs.unverified}
	case refs.solid > 0 && len(refs.dead) == 0:
		return keep("has an owner")
	case refs.solid > 0:
		return Decision{Action: Strip, Reason: "has another owner", Object: o, Owners: refs.dead}
	case refs.waiting && g.hasDependents(o.UID):
		return Decision{
			Action: Delete, Reason: "its owner waits for its deletion", Object: o,
			Policy: metav1.DeletePropagationForeground, Unblock: g.inCycle(o.UID),
		}
	case refs.waiting:
		return Decision{Action: Delete, Reason: "its owner waits for its deletion", Object: o, Policy: defaultPolicy(o)}
	default:
		return Decision{Action: Delete, Reason: "its owner does not exist", Object: o, Policy: defaultPolicy(o)}
	}
}

type classified struct {
	solid        int
	waiting      bool
	unresolvable bool
	dead         []types.UID
	unverified   []Identity
}

func (g *Graph) classify(o Object) classified {
	var c classified
	for i := range o.Owners {
		ref := &o.Owners[i]
		state, id := g.state(o.Identity, ref)
		switch state {
		case refSolid:
			c.solid++
		case refWaiting:
			c.waiting = true
			c.dead = append(c.dead, ref.UID)
		case refAbsent:
			c.dead = append(c.dead, ref.UID)
		case refUnverified:
			c.unverified = append(c.unverified, id)
		case refUnresolvable:
			c.unresolvable = true
		}
	}
	return c
}

// decideVirtual asks for every set of coordinates that some dependent uses for the node.
func (g *Graph) decideVirtual(n *node) Decision {
	claims := map[Identity]struct{}{}
	for _, d := range n.dependents {
		for i := range d.owners {
			if d.owners[i].UID != n.id.UID {
				continue
			}
			if state, id := g.state(d.id, &d.owners[i]); state == refUnverified {
				claims[id] = struct{}{}
			}
		}
	}
	if len(claims) == 0 {
		return Decision{Action: Keep, Reason: "nothing that can be looked up"}
	}
	d := Decision{Action: Verify, Reason: "known only from its dependents", Object: Object{Identity: n.id}}
	for id := range claims {
		d.Verify = append(d.Verify, id)
	}
	slices.SortFunc(d.Verify, func(a, b Identity) int { return cmp.Compare(a.String(), b.String()) })
	return d
}

// blocked reports whether a dependent of uid must go before it.
func (g *Graph) blocked(uid types.UID) bool {
	n := g.nodes[uid]
	if n == nil {
		return false
	}
	for _, d := range n.dependents {
		if d == n {
			continue // an object that owns itself must not wait for itself
		}
		for i := range d.owners {
			if d.owners[i].UID == uid && blocks(&d.owners[i]) {
				return true
			}
		}
	}
	return false
}

func (g *Graph) hasDependents(uid types.UID) bool {
	n := g.nodes[uid]
	return n != nil && len(n.dependents) > 0
}

// inCycle reports whether a dependent of uid already waits for its own dependents.
// Asked about an object whose owner waits: that dependent may wait for this very object.
func (g *Graph) inCycle(uid types.UID) bool {
	n := g.nodes[uid]
	if n == nil {
		return false
	}
	for _, d := range n.dependents {
		if d.waiting() {
			return true
		}
	}
	return false
}

func defaultPolicy(o Object) metav1.DeletionPropagation {
	switch {
	case o.Orphan:
		return metav1.DeletePropagationOrphan
	case o.Foreground:
		return metav1.DeletePropagationForeground
	default:
		return metav1.DeletePropagationBackground
	}
}
