package graph

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// oracle knows the same facts as the graph, without edges, and recomputes every
// decision from all of them.
type oracle struct {
	objects map[types.UID]Object
	gone    map[types.UID]Identity
	absent  map[Identity]bool
	scope   ScopeFunc
}

func newOracle(scope ScopeFunc) *oracle {
	return &oracle{objects: map[types.UID]Object{}, gone: map[types.UID]Identity{}, absent: map[Identity]bool{}, scope: scope}
}

func (o *oracle) observe(obj Object) {
	o.objects[obj.UID] = obj
	delete(o.gone, obj.UID)
	delete(o.absent, obj.Identity)
	o.prune()
}

func (o *oracle) remove(id Identity) {
	if obj, ok := o.objects[id.UID]; !ok || obj.Identity != id {
		return
	}
	delete(o.objects, id.UID)
	o.gone[id.UID] = id
	o.prune()
}

func (o *oracle) confirmAbsent(id Identity) {
	if _, ok := o.objects[id.UID]; ok && o.objects[id.UID].Identity == id {
		o.remove(id)
		return
	}
	if !o.isGone(id.UID) {
		o.absent[id] = true
	}
	o.prune()
}

func (o *oracle) isGone(uid types.UID) bool {
	_, gone := o.gone[uid]
	return gone
}

func (o *oracle) endKind(kind string, held map[types.UID]bool) {
	for uid, obj := range o.objects {
		if obj.Kind != kind {
			continue
		}
		delete(o.objects, uid)
		for id := range o.absent {
			if id.UID == uid {
				delete(o.absent, id)
			}
		}
		if !held[uid] {
			o.gone[uid] = obj.Identity
		}
	}
	o.prune()
}

// prune forgets facts about objects that nothing mentions.
func (o *oracle) prune() {
	mentioned := func(uid types.UID) bool {
		for _, d := range o.objects {
			if findReference(d.Owners, uid) != nil {
				return true
			}
		}
		return false
	}
	for uid := range o.gone {
		if !mentioned(uid) {
			delete(o.gone, uid)
		}
	}
	for id := range o.absent {
		if _, exists := o.objects[id.UID]; o.isGone(id.UID) || (!exists && !mentioned(id.UID)) {
			delete(o.absent, id)
		}
	}
}

func (o *oracle) decide(obj Object) string {
	var dependents, blockers int
	cycle := false
	for _, d := range o.objects {
		ref := findReference(d.Owners, obj.UID)
		if ref == nil {
			continue
		}
		dependents++
		if blocks(ref) && d.UID != obj.UID {
			blockers++
		}
		cycle = cycle || (d.Deleting && d.Foreground)
	}
	if obj.Deleting {
		if obj.Foreground && blockers == 0 {
			return "finish-foreground"
		}
		return "keep"
	}
	solid, waiting, dead, unverified := 0, 0, 0, 0
	for _, ref := range obj.Owners {
		id := Identity{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}
		switch o.scope(ref.APIVersion, ref.Kind) {
		case ScopeUnknown:
			id.Namespace = o.gone[ref.UID].Namespace
			if !o.isGone(ref.UID) || o.gone[ref.UID] != id || id.Namespace != "" && id.Namespace != obj.Namespace {
				return "keep"
			}
		case ScopeNamespaced:
			if obj.Namespace == "" {
				return "keep"
			}
			id.Namespace = obj.Namespace
		}
		owner, exists := o.objects[ref.UID]
		switch {
		case o.isGone(ref.UID) || o.absent[id]:
			dead++
		case !exists || owner.Identity != id:
			unverified++
		case owner.Deleting && owner.Foreground:
			waiting++
		default:
			solid++
		}
	}
	switch {
	case unverified > 0:
		return "verify"
	case len(obj.Owners) == 0 || (solid > 0 && waiting+dead == 0):
		return "keep"
	case solid > 0:
		return "strip"
	case waiting > 0 && dependents > 0 && cycle:
		return "delete Foreground unblock"
	case waiting > 0 && dependents > 0:
		return "delete Foreground"
	case obj.Orphan:
		return "delete Orphan"
	case obj.Foreground:
		return "delete Foreground"
	default:
		return "delete Background"
	}
}

func (o *oracle) compare(t *rapid.T, g *Graph) {
	for uid, obj := range o.objects {
		d := g.Decide(uid)
		got := d.Action.String()
		if d.Action == Delete {
			got += " " + string(d.Policy)
			if d.Unblock {
				got += " unblock"
			}
		}
		if want := o.decide(obj); got != want {
			t.Fatalf("%s: graph says %q (%s), oracle %q\n%s", uid, got, d.Reason, want, g.Dump())
		}
		if len(obj.Owners) == 0 {
			continue
		}
		for _, ref := range obj.Owners {
			listed := slices.ContainsFunc(g.Dependents(ref.UID), func(id Identity) bool { return id == obj.Identity })
			if !listed {
				t.Fatalf("%s is not listed as a dependent of %s\n%s", uid, ref.UID, g.Dump())
			}
		}
	}
	for uid, n := range g.nodes {
		if _, exists := o.objects[uid]; !exists && len(n.dependents) == 0 {
			t.Fatalf("%s is kept, but nothing mentions it\n%s", uid, g.Dump())
		}
	}
}
