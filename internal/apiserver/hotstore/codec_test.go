package hotstore

import (
	"bytes"
	"io"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
)

// encodings counts what is encoded.
type encodings struct {
	runtime.Codec
	count *int
}

func (c encodings) Encode(object runtime.Object, w io.Writer) error {
	*c.count++
	return c.Codec.Encode(object, w)
}

// TestWhatIsStoredIsNotEncodedAgain, but for once, and for the very object that was read from it.
func TestWhatIsStoredIsNotEncodedAgain(t *testing.T) {
	encoded := 0
	d := NewDecoder(encodings{exampleCodec, &encoded}, newExamplePod)
	codec := d.Codec()
	value, err := runtime.Encode(codec, &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	object, err := d.shared(value, 7)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(copied runtime.Object, want int) []byte {
		t.Helper()
		encoded = 0
		got, err := runtime.Encode(codec, copied)
		if err != nil {
			t.Fatal(err)
		}
		if encoded != want {
			t.Errorf("encoded %d times, want %d", encoded, want)
		}
		return got
	}
	copied := shallow(object)
	done := d.encodes(copied, object, 7)
	if got := encode(copied, 0); !bytes.Equal(got, value) {
		t.Errorf("got %q, stored is %q", got, value)
	}
	copied.(*example.Pod).Labels = map[string]string{"b": "c"}
	if got := encode(copied, 1); bytes.Equal(got, value) {
		t.Error("what was changed is lost")
	}
	done()
	d.encodes(copied, object, 7)()
	encode(copied, 1) // it was never asked for
	d.encodes(copied, object, 8)
	encode(copied, 1) // nobody knows what that revision wrote
	d.encodes(copied, shallow(object), 7)
	encode(copied, 1) // another object of that revision
}

// TestAWriterMayReturnWhatItWasGiven, with other outermost fields, while it is known what is stored of the object.
func TestAWriterMayReturnWhatItWasGiven(t *testing.T) {
	f := newFixture(t, nil)
	ctx, out := Careful(t.Context()), &example.Pod{}
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}
	if err := f.Create(ctx, "/pods/ns/a", pod, out, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.waitUntil(ctx, revisionOf(t, out)); err != nil {
		t.Fatal(err)
	}
	write := func(node string) uint64 {
		t.Helper()
		change := storage.SimpleUpdate(func(now runtime.Object) (runtime.Object, error) {
			now.(*example.Pod).Spec.NodeName = node
			return now, nil
		})
		err := f.GuaranteedUpdate(ctx, "/pods/ns/a", out, false, nil, change, nil)
		if err != nil {
			t.Fatal(err)
		}
		if out.Spec.NodeName != node {
			t.Errorf("it was written to node %q, want %q", out.Spec.NodeName, node)
		}
		at := revisionOf(t, out)
		if err := f.waitUntil(ctx, at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	first := write("x")
	if second := write("x"); second != first {
		t.Errorf("a write that changes nothing has version %d, the one before %d", second, first)
	}
	if third := write("y"); third == first {
		t.Error("a write was lost")
	}
}

func revisionOf(t *testing.T, object runtime.Object) uint64 {
	t.Helper()
	revision, err := storage.APIObjectVersioner{}.ObjectResourceVersion(object)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}
