package hotstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"reflect"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/client-go/tools/cache"

	"github.com/everynode/everynode/internal/apiserver/hotstore/molds"
)

// recentWrites is of how many revisions the decoded object is remembered: a write is
// told to the cache within moments, or it is decoded once more.
const recentWrites = 512

// Decoder turns what the database holds into objects, each of them once: for who wrote
// it, for the cache and for all who watch.
type Decoder struct {
	// Decoder is the library's. Lists of old versions use it, which have nothing in common
	// with what was written last.
	etcd3.Decoder
	codec     runtime.Codec
	versioner storage.Versioner
	newObject func() runtime.Object

	mu     sync.Mutex // guards recent
	recent [recentWrites]*decoding
	// answers are those of writes under way that are not simply copies, by the object that
	// takes them.
	answers sync.Map // of runtime.Object, *answer
	// unchanged is what is stored of objects that are as it says, until they are encoded.
	unchanged sync.Map // of runtime.Object, []byte
	// known returns the last object that the cache knows by this one's name, or nil.
	known func(runtime.Object) runtime.Object
	molds molds.Molds
	// detector finds who changes what is shared, in tests.
	detector cache.MutationDetector
}

// decoding is what one revision wrote.
type decoding struct {
	revision int64
	value    []byte
	once     sync.Once
	// made is set when the two below are.
	made   atomic.Bool
	object runtime.Object
	err    error
}

// is reports whether an object was decoded from it.
func (d *decoding) is(object runtime.Object) bool { return d.made.Load() && d.object == object }

// answer is that of a write under way: of one whose caller may share the object, or of a
// removal, which need not be decoded.
type answer struct {
	removal  bool
	revision int64
}

// answer lets a careful writer's answer share the object with the cache, until the
// returned function is called.
func (d *Decoder) answer(ctx context.Context, out runtime.Object) (done func()) {
	if out == nil || !isCareful(ctx) {
		return func() {}
	}
	d.answers.Store(out, &answer{})
	return func() { d.answers.Delete(out) }
}

// NewDecoder returns a decoder of one kind.
func NewDecoder(codec runtime.Codec, newObject func() runtime.Object) *Decoder {
	versioner := storage.APIObjectVersioner{}
	return &Decoder{
		Decoder: etcd3.NewDefaultDecoder(codec, versioner), codec: codec, versioner: versioner, newObject: newObject,
		known: func(runtime.Object) runtime.Object {
			return nil
		}, detector: cache.NewCacheMutationDetector(fmt.Sprintf("%T", newObject())),
	}
}

// Decode implements etcd3.Decoder. The object is the caller's own.
func (d *Decoder) Decode(value []byte, out runtime.Object, revision int64) error {
	v, err := conversion.EnforcePtr(out)
	if err != nil {
		return fmt.Errorf("unable to convert output object to pointer: %w", err)
	}
	sharing := false
	if a, ok := d.answers.Load(out); ok {
		if a := a.(*answer); a.removal {
			a.revision = revision
			return nil
		}
		sharing = true
	}
	object, err := d.shared(value, revision)
	if err != nil {
		return err
	}
	if !sharing {
		object = object.DeepCopyObject()
	}
	v.Set(reflect.ValueOf(object).Elem())
	return nil
}

// shared returns the object that a revision wrote. Nobody may change it.
func (d *Decoder) shared(value []byte, revision int64) (runtime.Object, error) {
	d.mu.Lock()
	place := &d.recent[revision%recentWrites]
	known := *place
	if known == nil || known.revision != revision {
		known = &decoding{revision: revision, value: value}
		*place = known
	}
	d.mu.Unlock()
	if !bytes.Equal(known.value, value) {
		return d.begin(value, revision) // One revision can write several keys.
	}
	known.once.Do(func() {
		known.object, known.err = d.begin(value, revision)
		known.made.Store(true)
	})
	return known.object, known.err
}

// begin decodes an object that will be shared.
func (d *Decoder) begin(value []byte, revision int64) (runtime.Object, error) {
	object, err := d.decode(value, revision)
	if err != nil {
		return nil, err
	}
	d.molds.Fit(object, d.known(object))
	d.detector.AddObject(object)
	return object, nil
}

func (d *Decoder) decode(value []byte, revision int64) (runtime.Object, error) {
	object, _, err := d.codec.Decode(value, nil, d.newObject())
	if err != nil {
		return nil, err //nolint:wrapcheck // As the library's decoder.
	}
	if err := d.versioner.UpdateObject(object, uint64(revision)); err != nil {
		return nil, fmt.Errorf("set the resource version: %w", err)
	}
	return object, nil
}

// shallow returns a copy that shares all but the outermost fields.
func shallow(object runtime.Object) runtime.Object {
	v := reflect.ValueOf(object).Elem()
	out := reflect.New(v.Type())
	out.Elem().Set(v)
	return out.Interface().(runtime.Object)
}

// Codec is the codec for the storage that a cache writes through. It makes less garbage than the kind's own, and does
// not encode again what was written a moment ago.
func (d *Decoder) Codec() runtime.Codec {
	out := sparing{Codec: d.codec, decoder: d}
	out.with, _ = d.codec.(runtime.EncoderWithAllocator)
	return out
}

type sparing struct {
	runtime.Codec
	// with is the same codec, if it can do with memory that was used before.
	with    runtime.EncoderWithAllocator
	decoder *Decoder
}

// Encode implements runtime.Encoder.
func (s sparing) Encode(object runtime.Object, w io.Writer) error {
	if value, ok := s.decoder.unchanged.LoadAndDelete(object); ok {
		_, err := w.Write(value.([]byte))
		return err //nolint:wrapcheck // It is the writer's.
	}
	if s.with == nil {
		return s.Codec.Encode(object, w) //nolint:wrapcheck // It is the codec's.
	}
	memory := runtime.AllocatorPool.Get().(*runtime.Allocator)
	defer runtime.AllocatorPool.Put(memory)
	return s.with.EncodeWithAllocator(object, w, memory) //nolint:wrapcheck // It is the codec's.
}

// encodes lets the storage have what is stored of an object, if that is known, the first time that it encodes the copy:
// it does so before anybody can change it, to see later whether a write changes anything. The returned function takes
// that back.
func (d *Decoder) encodes(copied, object runtime.Object, revision uint64) (done func()) {
	d.mu.Lock()
	written := d.recent[revision%recentWrites]
	d.mu.Unlock()
	if written == nil || uint64(written.revision) != revision || !written.is(object) {
		return func() {}
	}
	d.unchanged.Store(copied, written.value)
	return func() { d.unchanged.Delete(copied) }
}
