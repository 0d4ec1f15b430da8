package graph

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// world is an API server whose events reach the graph late, kind by kind, and a
// garbage collector that works on one object at a time.
type world struct {
	t       *rapid.T
	g       *Graph
	objects map[types.UID]*Object
	serial  int
	events  map[string][]event
	pending []types.UID
	oracle  *oracle
	// ended are kinds that are not served now.
	ended map[string]bool
}

type event struct {
	object  Object
	deleted bool
}

var kinds = []string{"Deployment", "ReplicaSet", "Pod", "Node"}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, objects: map[types.UID]*Object{}, events: map[string][]event{}, ended: map[string]bool{}}
	scope := func(apiVersion, kind string) Scope {
		if w.ended[kind] {
			return ScopeUnknown
		}
		return testScope(apiVersion, kind)
	}
	w.g, w.oracle = New(scope), newOracle(scope)
	return w
}

// end has a kind served no more. Of the events that are under way the informer still takes the
// first few, and tells nobody.
func (w *world) end(kind string, taken int) {
	held := map[types.UID]bool{}
	for uid, o := range w.oracle.objects {
		held[uid] = held[uid] || o.Kind == kind
	}
	for _, e := range w.events[kind][:taken] {
		held[e.object.UID] = !e.deleted
	}
	w.events[kind], w.ended[kind] = nil, true
	w.g.EndKind("v1", kind, func(uid types.UID) bool { return held[uid] })
	w.oracle.endKind(kind, held)
	w.recheck(kind)
}

// serve has a kind served again: all that is there is listed.
func (w *world) serve(kind string) {
	w.ended[kind] = false
	for _, uid := range slices.Sorted(maps.Keys(w.objects)) {
		if o := w.objects[uid]; o.Kind == kind {
			w.emit(o, false)
		}
	}
	w.recheck(kind)
}

func (w *world) recheck(kind string) {
	w.g.Recheck(func(_, k string) bool { return k == kind })
	w.collect()
}

func (w *world) emit(o *Object, deleted bool) {
	w.serial++
	o.ResourceVersion = fmt.Sprint(w.serial)
	snapshot := *o
	snapshot.Owners = slices.Clone(o.Owners)
	if !w.ended[o.Kind] {
		w.events[o.Kind] = append(w.events[o.Kind], event{snapshot, deleted})
	}
}

func (w *world) create(kind, namespace string, owners []metav1.OwnerReference) {
	w.serial++
	name := fmt.Sprintf("o%03d", w.serial)
	o := &Object{Identity: Identity{APIVersion: "v1", Kind: kind, Namespace: namespace, Name: name, UID: types.UID(name)}, Owners: owners}
	w.objects[o.UID] = o
	w.emit(o, false)
}

func (w *world) delete(o *Object, policy metav1.DeletionPropagation) {
	if o.Deleting {
		return
	}
	o.Deleting = true
	o.Orphan = policy == metav1.DeletePropagationOrphan
	o.Foreground = policy == metav1.DeletePropagationForeground
	w.finish(o)
}

// finish writes o back; a deleting object without finalizers goes.
func (w *world) finish(o *Object) {
	remove := o.Deleting && !o.Orphan && !o.Foreground
	if remove {
		delete(w.objects, o.UID)
	}
	w.emit(o, remove)
}

func (w *world) find(id Identity) *Object {
	if o := w.objects[id.UID]; o != nil && o.Identity == id {
		return o
	}
	return nil
}

// ownerOf is the live object that the reference means, or nil; ok is false where
// nobody can tell.
func (w *world) ownerOf(o *Object, ref metav1.OwnerReference) (owner *Object, ok bool) {
	id := Identity{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: ref.UID}
	switch testScope(ref.APIVersion, ref.Kind) {
	case ScopeUnknown:
		return nil, false
	case ScopeNamespaced:
		id.Namespace = o.Namespace
		if o.Namespace == "" {
			return nil, false
		}
	}
	return w.find(id), true
}

func (w *world) collect() {
	r := w.g.Ready()
	w.pending = append(w.pending, r.Delete...)
	w.pending = append(w.pending, r.Orphan...)
}

func (w *world) deliver(kind string) {
	e := w.events[kind][0]
	w.events[kind] = w.events[kind][1:]
	if e.deleted {
		w.g.Remove(e.object.Identity)
		w.oracle.remove(e.object.Identity)
	} else {
		w.g.Observe(e.object)
		w.oracle.observe(e.object)
	}
	w.collect()
}

func (w *world) confirmAbsent(id Identity) {
	w.g.ConfirmAbsent(id)
	w.oracle.confirmAbsent(id)
	w.collect()
}

// work does what a worker does with one pending object.
func (w *world) work(uid types.UID) {
	if o, ok := w.g.Find(uid); ok && o.Deleting && o.Orphan {
		w.orphan(uid)
		return
	}
	d := w.g.Decide(uid)
	for range 6 {
		if d.Action == Keep {
			return
		}
		if d.Action == Verify {
			unseen := false
			for _, id := range d.Verify {
				if w.find(id) == nil {
					w.confirmAbsent(id)
				} else {
					unseen = true
				}
			}
			if unseen {
				w.pending = append(w.pending, uid)
				return
			}
			d = w.g.Decide(uid)
			continue
		}
		live := w.find(d.Object.Identity)
		if live == nil {
			w.confirmAbsent(d.Object.Identity)
			return
		}
		if live.ResourceVersion != d.Object.ResourceVersion {
			d = w.g.DecideLive(*live)
			if d.Action != Verify {
				w.act(live, d)
				return
			}
			continue
		}
		w.act(live, d)
		return
	}
	w.pending = append(w.pending, uid)
}

func (w *world) act(o *Object, d Decision) {
	switch d.Action {
	case Strip:
		o.Owners = slices.DeleteFunc(slices.Clone(o.Owners), func(ref metav1.OwnerReference) bool { return slices.Contains(d.Owners, ref.UID) })
		w.emit(o, false)
	case FinishForeground:
		o.Foreground = false
		w.finish(o)
	case Delete:
		w.checkSafe(o)
		if d.Unblock {
			o.Owners = slices.Clone(o.Owners)
			for i := range o.Owners {
				o.Owners[i].BlockOwnerDeletion = nil
			}
		}
		w.delete(o, d.Policy)
	}
}

func (w *world) orphan(uid types.UID) {
	for _, id := range w.g.Dependents(uid) {
		if o := w.find(id); o != nil {
			o.Owners = slices.DeleteFunc(slices.Clone(o.Owners), func(ref metav1.OwnerReference) bool { return ref.UID == uid })
			w.emit(o, false)
		}
	}
	if o := w.objects[uid]; o != nil {
		o.Orphan = false
		w.finish(o)
	}
}

// checkSafe fails if the collector deletes an object that an existing owner holds.
func (w *world) checkSafe(o *Object) {
	for _, ref := range o.Owners {
		owner, ok := w.ownerOf(o, ref)
		if !ok {
			w.t.Fatalf("deleted %s, whose owner %s nobody can look up", o.Identity, ref.UID)
		}
		if owner != nil && (!owner.Deleting || !owner.Foreground) {
			w.t.Fatalf("deleted %s, which %s owns", o.Identity, owner.Identity)
		}
	}
}

// settle lets everything arrive and every worker end.
func (w *world) settle() {
	for _, kind := range kinds {
		if w.ended[kind] {
			w.serve(kind)
		}
	}
	for step := 0; ; step++ {
		if step > 20000 {
			w.t.Fatalf("no rest after %d steps:\n%s", step, w.g.Dump())
		}
		busy := false
		for _, kind := range kinds {
			if len(w.events[kind]) > 0 {
				w.deliver(kind)
				busy = true
			}
		}
		if len(w.pending) > 0 {
			uid := w.pending[0]
			w.pending = w.pending[1:]
			w.work(uid)
			busy = true
		}
		if !busy {
			return
		}
	}
}

// checkSettled compares what is left with what should be, from the objects alone.
func (w *world) checkSettled() {
	for _, o := range w.objects {
		if o.Deleting && o.Orphan {
			w.t.Fatalf("%s still waits for its dependents to be released", o.Identity)
		}
		if o.Deleting && o.Foreground && !w.hasStuckDependent(o.UID) {
			w.t.Fatalf("%s still waits, but nothing blocks it:\n%s", o.Identity, w.g.Dump())
		}
		if len(o.Owners) == 0 || o.Deleting {
			continue
		}
		held := false
		for _, ref := range o.Owners {
			owner, ok := w.ownerOf(o, ref)
			held = held || !ok || owner != nil
		}
		if !held {
			w.t.Fatalf("%s was left behind, its owners are gone:\n%s", o.Identity, w.g.Dump())
		}
	}
}

// hasStuckDependent reports whether a blocking dependent can rightly not be
// deleted: an owner of it cannot be looked up, or it waits for such an object.
func (w *world) hasStuckDependent(uid types.UID) bool {
	for _, d := range w.objects {
		blocking, unresolvable := false, false
		for _, ref := range d.Owners {
			blocking = blocking || (ref.UID == uid && blocks(&ref) && d.UID != uid)
			_, ok := w.ownerOf(d, ref)
			unresolvable = unresolvable || !ok
		}
		if blocking && (unresolvable || (d.Deleting && d.Foreground)) {
			return true
		}
	}
	return false
}

func (w *world) randomOwners(t *rapid.T) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for range rapid.IntRange(0, 2).Draw(t, "owners") {
		ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ReplicaSet", Name: "never", UID: "never"}
		if o := w.randomObject(t); o != nil {
			ref = metav1.OwnerReference{APIVersion: "v1", Kind: o.Kind, Name: o.Name, UID: o.UID}
		}
		switch rapid.IntRange(0, 11).Draw(t, "flaw") {
		case 0:
			ref.Kind = "Deployment" // maybe not the owner's
		case 1:
			ref.UID = "never"
		case 2:
			ref.APIVersion = "example.com/v1"
		}
		if rapid.Bool().Draw(t, "block") {
			yes := true
			ref.BlockOwnerDeletion = &yes
		}
		if findReference(refs, ref.UID) == nil {
			refs = append(refs, ref)
		}
	}
	return refs
}

func (w *world) randomObject(t *rapid.T) *Object {
	if len(w.objects) == 0 {
		return nil
	}
	uids := make([]types.UID, 0, len(w.objects))
	for uid := range w.objects {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	return w.objects[rapid.SampledFrom(uids).Draw(t, "object")]
}

// TestWorld: whatever users do and however late events arrive, the collector
// deletes nothing that is owned, and in the end leaves nothing that is not.
func TestWorld(t *testing.T) {
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				kind := rapid.SampledFrom(kinds).Draw(t, "kind")
				namespace := ""
				if kind != "Node" {
					namespace = rapid.SampledFrom([]string{"a", "a", "a", "b"}).Draw(t, "namespace")
				}
				if !w.ended[kind] {
					w.create(kind, namespace, w.randomOwners(t))
				}
			},
			"edit": func(t *rapid.T) {
				if o := w.randomObject(t); o != nil && !w.ended[o.Kind] {
					o.Owners = w.randomOwners(t)
					w.emit(o, false)
				}
			},
			"delete": func(t *rapid.T) {
				if o := w.randomObject(t); o != nil && !w.ended[o.Kind] {
					w.delete(o, rapid.SampledFrom(policies).Draw(t, "policy"))
				}
			},
			"end or serve": func(t *rapid.T) {
				switch kind := rapid.SampledFrom(kinds[:2]).Draw(t, "kind"); {
				case w.ended[kind]:
					w.serve(kind)
				case rapid.IntRange(0, 3).Draw(t, "rarely") == 0:
					w.end(kind, rapid.IntRange(0, len(w.events[kind])).Draw(t, "taken"))
				}
			},
			"deliver": func(t *rapid.T) {
				if kind := rapid.SampledFrom(kinds).Draw(t, "kind"); len(w.events[kind]) > 0 {
					w.deliver(kind)
				}
			},
			"work": func(t *rapid.T) {
				if len(w.pending) > 0 {
					i := rapid.IntRange(0, len(w.pending)-1).Draw(t, "which")
					uid := w.pending[i]
					w.pending = slices.Delete(w.pending, i, i+1)
					w.work(uid)
				}
			},
			"": func(t *rapid.T) { w.oracle.compare(t, w.g) },
		})
		w.settle()
		w.oracle.compare(t, w.g)
		w.checkSettled()
	})
}
