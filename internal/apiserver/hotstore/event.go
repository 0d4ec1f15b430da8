package hotstore

import (
	"bytes"
	"io"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher/store"
)

// entry is an object as the cache holds it. Nobody changes it.
type entry struct {
	runtime.Object
	// size is how many bytes the database holds of it.
	size int
	// stored is when the database told of it, and base the revision there of an object that
	// was renewed in memory since; 0 for one that was not.
	stored time.Time
	base   uint64
}

// entryOf is the entry of an element of the index.
func entryOf(element any) *entry { return element.(*store.Element).Object.(*entry) }

// event is a change of one object.
type event struct {
	key      string
	revision uint64
	// object is nil when it was deleted, previous when it was created.
	object, previous *entry
	// renewed marks a renewal in memory, which no history keeps.
	renewed bool
}

// delivery is an event on its way to those who watch. What it finds out on the way, it
// finds out once.
type delivery struct {
	*event
	// order counts what was told since the cache was made.
	order        uint64
	attributesOf storage.AttrFunc
	versioner    storage.Versioner

	current, old attributes
	once         sync.Once
	// gone is the previous object with the version of the event; wire and wireGone are
	// what is encoded for those outside, once for each encoding.
	gone           runtime.Object
	wire, wireGone *encodedOnce
}

// attributes are what selectors look at.
type attributes struct {
	once   sync.Once
	labels labels.Set
	fields fields.Set
	err    error
}

func (a *attributes) get(of *entry, attributesOf storage.AttrFunc) (labels.Set, fields.Set, error) {
	a.once.Do(func() { a.labels, a.fields, a.err = attributesOf(of.Object) })
	return a.labels, a.fields, a.err
}

func (d *delivery) prepare() {
	d.once.Do(func() {
		if d.object != nil {
			d.wire = &encodedOnce{object: d.object.Object}
		}
		if d.previous != nil {
			d.gone = shallow(d.previous.Object)
			// It fails for objects without metadata only, which no kind has.
			_ = d.versioner.UpdateObject(d.gone, d.revision)
			d.wireGone = &encodedOnce{object: d.gone}
		}
	})
}

// present is the object for a watcher to which it is there.
func (d *delivery) present(inside bool) runtime.Object {
	if inside {
		return d.object.Object
	}
	d.prepare()
	return d.wire
}

// absent is the object for a watcher to which it is gone.
func (d *delivery) absent(inside bool) runtime.Object {
	d.prepare()
	if inside {
		return d.gone
	}
	return d.wireGone
}

// encodedOnce is an object that is encoded once for each encoding, however many get it.
type encodedOnce struct {
	object runtime.Object

	mu      sync.Mutex // guards results
	results map[runtime.Identifier]*encoding
}

type encoding struct {
	once  sync.Once
	bytes []byte
	err   error
}

var _ runtime.CacheableObject = (*encodedOnce)(nil)

// CacheEncode implements runtime.CacheableObject.
func (o *encodedOnce) CacheEncode(id runtime.Identifier, encode func(runtime.Object, io.Writer) error,
	w io.Writer) error {
	o.mu.Lock()
	if o.results == nil {
		o.results = map[runtime.Identifier]*encoding{}
	}
	result := o.results[id]
	if result == nil {
		result = &encoding{}
		o.results[id] = result
	}
	o.mu.Unlock()
	result.once.Do(func() {
		var buffer bytes.Buffer
		// Encoders set the kind in the object's outermost fields for a moment.
		result.err = encode(shallow(o.object), &buffer)
		result.bytes = buffer.Bytes()
	})
	if result.err != nil {
		return result.err
	}
	if b, ok := w.(runtime.Splice); ok {
		b.Splice(result.bytes)
		return nil
	}
	_, err := w.Write(result.bytes)
	return err
}

// GetObject implements runtime.CacheableObject. The copy is the caller's.
func (o *encodedOnce) GetObject() runtime.Object { return o.object.DeepCopyObject() }

// GetObjectKind implements runtime.Object.
func (o *encodedOnce) GetObjectKind() schema.ObjectKind { return shallow(o.object).GetObjectKind() }

// DeepCopyObject implements runtime.Object.
func (o *encodedOnce) DeepCopyObject() runtime.Object {
	return &encodedOnce{object: o.object.DeepCopyObject()}
}

// GetObjectMeta implements metav1.ObjectMetaAccessor, for those who read it.
func (o *encodedOnce) GetObjectMeta() metav1.Object {
	m, err := meta.Accessor(shallow(o.object))
	if err != nil {
		return nil
	}
	return m
}
