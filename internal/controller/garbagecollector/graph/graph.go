package graph

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type presence uint8

const (
	virtual presence = iota
	observed
	gone
)

type node struct {
	id              Identity
	presence        presence
	resourceVersion string
	owners          []metav1.OwnerReference
	// dependents are observed nodes with a reference to this UID.
	dependents map[types.UID]*node
	// absent are coordinates under which a live read did not find this UID.
	absent     map[Identity]struct{}
	deleting   bool
	orphan     bool
	foreground bool
}

// waiting tells that the node's deletion waits for its dependents' deletion.
func (n *node) waiting() bool {
	return n.presence == observed && n.deleting && n.foreground
}

// Graph is every known object with its owners and dependents.
type Graph struct {
	scope ScopeFunc
	shown ShownFunc
	nodes map[types.UID]*node
	ready Ready
}

// New makes an empty graph of the kinds that scope knows.
func New(scope ScopeFunc) *Graph {
	return &Graph{scope: scope, shown: func(apiVersion, _ string) string {
		return apiVersion
	}, nodes: map[types.UID]*node{}}
}

// Show sets how the version is found in which a kind is observed; by default it is the
// one that is asked for.
func (g *Graph) Show(shown ShownFunc) { g.shown = shown }

// Recheck pends what refers to owners of a kind whose scope, or observed version, has
// changed. It looks at every object.
func (g *Graph) Recheck(changed func(apiVersion, kind string) bool) {
	var stale []*node
	for _, n := range g.nodes {
		if slices.ContainsFunc(n.owners, func(ref metav1.OwnerReference) bool { return changed(ref.APIVersion, ref.Kind) }) {
			stale = append(stale, n)
		}
	}
	slices.SortFunc(stale, func(a, b *node) int { return cmp.Compare(a.id.UID, b.id.UID) })
	for _, n := range stale {
		if n.presence == observed && (!n.deleting || n.foreground) {
			g.pend(n)
		}
	}
}

// Len is the number of objects held, those known only by reference included.
func (g *Graph) Len() int { return len(g.nodes) }

// Ready returns what may need work and forgets it.
func (g *Graph) Ready() Ready {
	r := g.ready
	g.ready = Ready{}
	return r
}

// Observe tells the state of an object that exists. The same state again costs nothing.
func (g *Graph) Observe(o Object) {
	n := g.nodes[o.UID]
	if n == nil {
		n = &node{id: o.Identity}
		g.nodes[o.UID] = n
	}
	first := n.presence != observed || n.id != o.Identity
	n.resourceVersion = o.ResourceVersion
	if !first && n.shows(o) {
		n.owners = o.Owners
		return
	}
	wasWaiting := n.waiting()
	wasOrphaning := n.presence == observed && n.deleting && n.orphan
	n.id, n.presence = o.Identity, observed
	n.deleting, n.orphan, n.foreground = o.Deleting, o.Orphan, o.Foreground
	delete(n.absent, o.Identity)
	if first {
		g.recheckDisagreeing(n)
	}
	g.setOwners(n, o.Owners)
	if n.waiting() && !wasWaiting {
		g.pend(n)
		g.pendDependents(n)
	}
	if n.deleting && n.orphan && !wasOrphaning {
		g.ready.Orphan = append(g.ready.Orphan, n.id.UID)
	}
}

// shows says whether nothing that counts has changed.
func (n *node) shows(o Object) bool {
	return n.deleting == o.Deleting && n.orphan == o.Orphan && n.foreground == o.Foreground &&
		slices.EqualFunc(n.owners, o.Owners, sameReference)
}

// Remove tells that an informer saw the object's deletion. The UID never comes
// back, so everything that refers to it loses that owner.
func (g *Graph) Remove(id Identity) {
	n := g.nodes[id.UID]
	if n == nil || n.presence != observed || n.id != id {
		return
	}
	g.lose(n, gone)
}

// lose takes an observed object out; what refers to it stays with its UID.
func (g *Graph) lose(n *node, to presence) {
	g.setOwners(n, nil)
	n.presence = to
	n.deleting, n.orphan, n.foreground = false, false, false
	n.absent = nil
	g.pendDependents(n)
	g.dropIfUnused(n)
}

// EndKind tells that objects of a kind are not observed any more in this version. Those
// of which held is true may still exist: nobody knows until they are observed again. The
// others were deleted. It looks at every object.
func (g *Graph) EndKind(apiVersion, kind string, held func(types.UID) bool) {
	var ended []*node
	for _, n := range g.nodes {
		if n.presence == observed && n.id.APIVersion == apiVersion && n.id.Kind == kind {
			ended = append(ended, n)
		}
	}
	slices.SortFunc(ended, func(a, b *node) int { return cmp.Compare(a.id.UID, b.id.UID) })
	for _, n := range ended {
		if held(n.id.UID) {
			g.lose(n, virtual)
		} else {
			g.lose(n, gone)
		}
	}
}

// ConfirmAbsent tells that a live read did not find id: nothing is there, or
// something with another UID.
func (g *Graph) ConfirmAbsent(id Identity) {
	n := g.nodes[id.UID]
	if n == nil || n.presence == gone {
		return
	}
	if n.presence == observed && n.id == id {
		g.Remove(id)
		return
	}
	if n.absent == nil {
		n.absent = map[Identity]struct{}{}
	}
	n.absent[id] = struct{}{}
	for _, d := range sorted(n.dependents) {
		if g.refersTo(d, id) {
			g.pend(d)
		}
	}
}

// Dependents lists the objects that refer to uid, in the order of their UIDs.
func (g *Graph) Dependents(uid types.UID) []Identity {
	n := g.nodes[uid]
	if n == nil {
		return nil
	}
	ids := make([]Identity, 0, len(n.dependents))
	for _, d := range sorted(n.dependents) {
		ids = append(ids, d.id)
	}
	return ids
}

// Find returns the object that was observed with uid.
func (g *Graph) Find(uid types.UID) (Object, bool) {
	n := g.nodes[uid]
	if n == nil || n.presence != observed {
		return Object{}, false
	}
	return n.object(), true
}

func (n *node) object() Object {
	return Object{
		Identity: n.id, ResourceVersion: n.resourceVersion, Owners: n.owners,
		Deleting: n.deleting, Orphan: n.orphan, Foreground: n.foreground,
	}
}

// setOwners moves n's edges from its present owners to the given ones.
func (g *Graph) setOwners(n *node, owners []metav1.OwnerReference) {
	before := n.owners
	n.owners = owners
	for i := range before {
		old := &before[i]
		owner := g.nodes[old.UID]
		if owner == nil {
			continue
		}
		after := findReference(owners, old.UID)
		if after == nil {
			delete(owner.dependents, n.id.UID)
			g.dropIfUnused(owner)
		}
		if owner.waiting() && blocks(old) && (after == nil || !blocks(after)) {
			g.pend(owner)
		}
	}
	needsDecision := false
	for i := range owners {
		needsDecision = g.link(n, &owners[i], findReference(before, owners[i].UID) == nil) || needsDecision
	}
	if needsDecision && (!n.deleting || n.foreground) {
		g.pend(n)
	}
}

// link makes n a dependent of the referenced owner and reports whether this
// reference alone is a reason to decide about n.
func (g *Graph) link(n *node, ref *metav1.OwnerReference, added bool) bool {
	owner := g.nodes[ref.UID]
	if owner == nil {
		owner = &node{presence: virtual}
		owner.id, _ = g.resolve(n.id, ref)
		g.nodes[ref.UID] = owner
	}
	if owner.dependents == nil {
		owner.dependents = map[types.UID]*node{}
	}
	owner.dependents[n.id.UID] = n
	if added {
		g.reportIfForeign(n, ref, owner)
	}
	state, _ := g.state(n.id, ref)
	switch state {
	case refWaiting, refAbsent:
		return true
	case refUnverified:
		if owner.presence == virtual {
			// One read of the owner serves all its dependents.
			g.pend(owner)
			return false
		}
		return true
	default:
		return false
	}
}

// recheckDisagreeing pends the dependents that named n by other coordinates than
// those it turned out to have.
func (g *Graph) recheckDisagreeing(n *node) {
	for _, d := range sorted(n.dependents) {
		if g.refersTo(d, n.id) {
			continue
		}
		if ref := findReference(d.owners, n.id.UID); ref != nil {
			g.reportIfForeign(d, ref, n)
		}
		g.pend(d)
	}
}

// reportIfForeign notes a reference to an existing object outside the dependent's namespace.
func (g *Graph) reportIfForeign(n *node, ref *metav1.OwnerReference, owner *node) {
	if owner.presence != observed || owner.id.Namespace == "" || owner.id.Namespace == n.id.Namespace {
		return
	}
	g.ready.Invalid = append(g.ready.Invalid, InvalidReference{Dependent: n.id, Reference: *ref})
}

func (g *Graph) refersTo(n *node, id Identity) bool {
	for i := range n.owners {
		if n.owners[i].UID != id.UID {
			continue
		}
		if resolved, ok := g.resolve(n.id, &n.owners[i]); ok && resolved == id {
			return true
		}
	}
	return false
}

func (g *Graph) pend(n *node) {
	g.ready.Delete = append(g.ready.Delete, n.id.UID)
}

func (g *Graph) pendDependents(n *node) {
	for _, d := range sorted(n.dependents) {
		g.pend(d)
	}
}

// dropIfUnused forgets a node that neither exists nor is referred to.
func (g *Graph) dropIfUnused(n *node) {
	if n.presence != observed && len(n.dependents) == 0 {
		delete(g.nodes, n.id.UID)
	}
}

func sorted(nodes map[types.UID]*node) []*node {
	list := make([]*node, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b *node) int { return cmp.Compare(a.id.UID, b.id.UID) })
	return list
}

func findReference(refs []metav1.OwnerReference, uid types.UID) *metav1.OwnerReference {
	for i := range refs {
		if refs[i].UID == uid {
			return &refs[i]
		}
	}
	return nil
}

func blocks(ref *metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}

func sameReference(a, b metav1.OwnerReference) bool {
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion &&
		blocks(&a) == blocks(&b)
}
