package hotstore

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/store"
	"k8s.io/utils/ptr"
)

// Renewal is how writes are found that say only that somebody is alive. They are kept in
// memory, and each object goes to the database again after a while.
type Renewal struct {
	// Renewable says, by what is held of an object, whether a write can be its renewal at all:
	// what a write makes of it is then found out twice if it is none.
	Renewable func(now runtime.Object) bool
	// Renewed returns what is held after a write that turns now into next; nil if it changes
	// anything but the time of the renewal, and now itself if it changes nothing. What it
	// returns shares nothing with next.
	Renewed func(now, next runtime.Object) runtime.Object
	// Keep is how old what the database holds of a renewed object may become.
	Keep time.Duration
}

// writes are those of one object that the cache does not show yet.
type writes struct {
	underWay int
	// until is the revision of the last one that ended.
	until uint64
}

// writing marks a write to the database as under way until what it returns is called, and
// then as not to be seen before the cache has reached the revision of its answer.
func (c *Cache) writing(key string, answer runtime.Object) (done func()) {
	if c.Renewal == nil {
		return func() {}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.writes[key]
	if w == nil {
		w = &writes{}
		c.writes[key] = w
	}
	w.underWay++
	return func() {
		// A write that failed may still come to be. It is as if it came after what is renewed meanwhile.
		revision, err := c.versioner.ObjectResourceVersion(answer)
		if err != nil {
			revision = 0
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		w.underWay--
		w.until = max(w.until, revision)
		c.settled(key, c.revision)
	}
}

// settled forgets the writes of an object that the cache shows. The lock is held.
func (c *Cache) settled(key string, revision uint64) {
	if w := c.writes[key]; w != nil && w.underWay == 0 && w.until <= revision {
		delete(c.writes, key)
	}
}

// renewable returns what is held of an object if it is the newest there is of it, and what
// the database holds is not too old; else nil. The lock is held.
func (c *Cache) renewable(key string) *entry {
	if w := c.writes[key]; !c.ready || w != nil && (w.underWay > 0 || w.until > c.revision) {
		return nil
	}
	element, ok, err := c.objects.GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	e := entryOf(element)
	if c.Clock.Since(e.stored) >= c.Renewal.keep(key) || !c.Renewal.Renewable(e.Object) {
		return nil
	}
	return e
}

// keep is between half and all of the time that a renewed object is kept from the database:
// what begins at once, such as all nodes of a cluster, is not written at once.
func (r *Renewal) keep(key string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return r.Keep/2 + time.Duration(h.Sum32()%1024)*r.Keep/2048
}

// renew carries a write out in memory, and says whether it could. What it cannot, or what
// is to be answered with an error, goes to the database.
func (c *Cache) renew(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, update storage.UpdateFunc,
) bool {
	if c.Renewal == nil {
		return false
	}
	v, err := conversion.EnforcePtr(out)
	if err != nil {
		return false
	}
	e, at := c.newest(key)
	if e == nil || preconditions.Check(key, e.Object) != nil {
		return false
	}
	input := shallow(e.Object)
	if !isCareful(ctx) {
		input = input.DeepCopyObject()
	}
	// What is among the objects has a version.
	revision, _ := c.versioner.ObjectResourceVersion(e.Object)
	next, ttl, err := update(input, storage.ResponseMeta{ResourceVersion: revision})
	if err != nil || ptr.Deref(ttl, 0) != 0 {
		return false
	}
	renewed := c.keepRenewed(key, e, at, next)
	if renewed == nil {
		return false
	}
	if !isCareful(ctx) {
		renewed = renewed.DeepCopyObject()
	}
	v.Set(reflect.ValueOf(renewed).Elem())
	return true
}

// Renew carries out a write of next in memory, if that says only that somebody is alive, and
// if next is of the version that is known: whether one of no version may be written at all is
// for the registry to say. It returns what is held then, of which the outermost fields are the
// caller's; nil if nothing was done.
func (c *Cache) Renew(key string, next runtime.Object) runtime.Object {
	if c.Renewal == nil {
		return nil
	}
	e, at := c.newest(key)
	if e == nil {
		return nil
	}
	known, knownErr := c.versioner.ObjectResourceVersion(e.Object)
	expected, err := c.versioner.ObjectResourceVersion(next)
	if err != nil || knownErr != nil || expected != known {
		return nil
	}
	if renewed := c.keepRenewed(key, e, at, next); renewed != nil {
		return shallow(renewed)
	}
	return nil
}

// newest is what is held of an object that can be renewed, and the revision that the cache
// has reached; nil if it cannot.
func (c *Cache) newest(key string) (*entry, uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.renewable(key), c.revision
}

// keepRenewed holds what next makes of an object, and returns it; nil if next is no renewal.
// at is the revision that the cache had reached with that object.
func (c *Cache) keepRenewed(key string, e *entry, at uint64, next runtime.Object) runtime.Object {
	renewed := c.Renewal.Renewed(e.Object, next)
	if renewed == nil || renewed == e.Object {
		return renewed
	}
	// Of an object whose version the cache has not gone beyond, two states would have the same.
	revision, err := c.versioner.ObjectResourceVersion(e.Object)
	if err != nil || revision >= at || !c.hold(key, e, renewed) {
		return nil
	}
	return renewed
}

// hold puts a renewed object in the place of the one that it was made of, and says whether
// that was still there. It gets the version that the cache has reached.
func (c *Cache) hold(key string, from *entry, renewed runtime.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.renewable(key) != from {
		return false
	}
	e := *from
	if e.base == 0 {
		// It has a version, or it would not be among the objects.
		e.base, _ = c.versioner.ObjectResourceVersion(from.Object)
	}
	e.Object = renewed
	if err := c.versioner.UpdateObject(renewed, c.revision); err != nil {
		return false
	}
	change := &event{key: key, revision: c.revision, object: &e, previous: from, renewed: true}
	if !c.take(change) {
		return false
	}
	c.watchers.tell(c, change)
	return true
}

// known is an object as a write to the database finds it in memory.
type known struct {
	// object has the version that the database holds; nil if there is none. It is a copy of what is shared.
	object, shared runtime.Object
	// memory is what is held of it, of that revision, if it was renewed since; base is the
	// revision of the database.
	memory         runtime.Object
	revision, base uint64
	versioner      storage.Versioner
}

// known returns the object in memory. Its outermost fields are the caller's: the storage
// takes the version away for the time of encoding.
func (c *Cache) known(key string) known {
	element, ok, err := c.objects.GetByKey(key)
	if err != nil || !ok {
		return known{}
	}
	e := entryOf(element)
	k := known{object: shallow(e.Object), shared: e.Object, versioner: c.versioner}
	if e.base == 0 {
		return k
	}
	k.memory, k.base = e.Object, e.base
	// Neither fails for objects that were decoded.
	k.revision, _ = c.versioner.ObjectResourceVersion(e.Object)
	_ = c.versioner.UpdateObject(k.object, e.base)
	return k
}

// encodes lets the storage have what is stored of the object, as long as a write is under way.
func (k known) encodes(d *Decoder) (done func()) {
	if k.object == nil || k.base != 0 { // a renewed one is not what is stored
		return func() {}
	}
	revision, err := k.versioner.ObjectResourceVersion(k.shared)
	if err != nil {
		return func() {}
	}
	return d.encodes(k.object, k.shared, revision)
}

// renewed returns what a writer is to see of an object that the database has, or that
// stands for it: the renewed one if that was made of it.
func (k known) renewed(object runtime.Object) runtime.Object {
	if k.memory == nil {
		return object
	}
	if revision, err := k.versioner.ObjectResourceVersion(object); err != nil || revision != k.base {
		return object
	}
	return shallow(k.memory)
}

// translate makes conditions on a renewed object into ones on what the database holds. A version that memory does not
// know may be of a write that was just answered: the database knows. That of before the renewal would be right there.
func (k known) translate(key string, p *storage.Preconditions) (*storage.Preconditions, error) {
	if k.memory == nil || p == nil || p.ResourceVersion == nil {
		return p, nil
	}
	err := p.Check(key, k.memory)
	if err != nil && *p.ResourceVersion != strconv.FormatUint(k.base, 10) {
		return p, nil
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // The registry knows these errors.
	}
	translated := *p
	translated.ResourceVersion = ptr.To(strconv.FormatUint(k.base, 10))
	return &translated, nil
}

// renewedSince returns how to find what was renewed in memory below a key at a revision or after it, in the order of
// revisions: no history keeps it, and who listed at the very revision may have the state of before. The lock is held;
// what it returns needs none.
func (c *Cache) renewedSince(key string, revision uint64) func() ([]*event, error) {
	all := c.objects.Clone()
	return func() (out []*event, err error) {
		found, err := all.OrderedListPrefix(key, "")
		if err != nil {
			return nil, fmt.Errorf("find what was renewed: %w", err)
		}
		for _, item := range found {
			element := item.(*store.Element)
			e := element.Object.(*entry)
			if e.base == 0 {
				continue
			}
			version, err := c.versioner.ObjectResourceVersion(e.Object)
			if err == nil && version >= revision {
				out = append(out, &event{key: element.Key, revision: version, object: e, previous: e, renewed: true})
			}
		}
		slices.SortStableFunc(out, byRevision)
		return out, nil
	}
}

// byRevision is the order in which events are told: should a watch be cut off it goes on after the last one.
func byRevision(a, b *event) int { return cmp.Compare(a.revision, b.revision) }

// freshen puts what was renewed since in place of an object that was read from the database.
func (c *Cache) freshen(object runtime.Object) error {
	if c.Renewal == nil {
		return nil
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return fmt.Errorf("look whether it was renewed: %w", err)
	}
	element, ok, err := c.objects.GetByKey(c.keyOf(m))
	if err != nil || !ok {
		return nil //nolint:nilerr // Then it was not renewed.
	}
	if e := entryOf(element); e.base != 0 && m.GetResourceVersion() == strconv.FormatUint(e.base, 10) {
		reflect.ValueOf(object).Elem().Set(reflect.ValueOf(e.Object).Elem())
	}
	return nil
}

// stored lists a cache's objects with the versions that the database holds, for the check that compares both.
type stored struct{ *Cache }

// GetList implements what the check asks for.
func (s stored) GetList(ctx context.Context, key string, options storage.ListOptions, list runtime.Object) error {
	return s.getList(ctx, key, options, list, true)
}

// asStored gives the items of a list the versions that the database holds, by the very entries that the list was made
// of: meanwhile the cache may hold others.
func asStored(list runtime.Object, chosen []*store.Element) error {
	i := 0
	return meta.EachListItem(list, func(object runtime.Object) error { //nolint:wrapcheck // It says what it is.
		e := chosen[i].Object.(*entry)
		i++
		if e.base == 0 {
			return nil
		}
		m, err := meta.Accessor(object)
		if err != nil {
			return fmt.Errorf("compare with the database: %w", err)
		}
		m.SetResourceVersion(strconv.FormatUint(e.base, 10))
		return nil
	})
}
