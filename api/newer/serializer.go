package newer

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// serializer reads and writes objects as JSON. What it reads is marked.
type serializer struct {
	*jsonserializer.Serializer
	// stores tells that what is written is stored: then the annotation is left out. Else nothing is written that is
	// marked.
	stores bool
}

// ForStorage returns what reads and writes the objects of a server's own storage. That nothing is stored that is marked
// is for the storage to see to: it writes objects as text also to compare them.
func ForStorage(scheme *runtime.Scheme) runtime.Serializer { return newSerializer(scheme, true) }

// ForClients returns what reads the answers of an API and writes what is sent there.
func ForClients(scheme *runtime.Scheme) runtime.Serializer { return newSerializer(scheme, false) }

func newSerializer(scheme *runtime.Scheme, stores bool) runtime.Serializer {
	return serializer{
		jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme,
			jsonserializer.SerializerOptions{Strict: true}),
		stores,
	}
}

// Decode implements runtime.Decoder. The text is read once, in which the fields that nobody knows are noted down; a
// list with very many of them is read again, one object after the other.
func (s serializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	obj, gvk, err := s.Serializer.Decode(data, defaults, into)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		return obj, gvk, err
	}
	unknown := unknownIn(err)
	if o, single := obj.(metav1.Object); single {
		if unknown.overflows && len(unknown.paths) == 0 {
			unknown.paths = []string{"more than can be told"}
		}
		mark(o, besideMetadata(unknown.paths))
		return obj, gvk, nil
	}
	if meta.IsListType(obj) {
		err := markItems(data, obj, unknown)
		if err != nil {
			return nil, gvk, err
		}
	}
	return obj, gvk, nil
}

// Encode implements runtime.Encoder.
func (s serializer) Encode(obj runtime.Object, w io.Writer) error {
	o, single := obj.(metav1.Object)
	if !single || o.GetAnnotations()[Annotation] == "" {
		return s.Serializer.Encode(obj, w)
	}
	if s.stores {
		plain := obj.DeepCopyObject()
		silence(plain.(metav1.Object))
		return s.Serializer.Encode(plain, w)
	}
	if err := Refuse(obj); err != nil {
		return err
	}
	return s.Serializer.Encode(obj, w)
}

// Refuse returns the error of a write of an object that was read without some of its fields, unless they are given up;
// nil for any other.
func Refuse(obj runtime.Object) error {
	o, single := obj.(metav1.Object)
	if !single || Fields(o) == "" {
		return nil
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	return apierrors.NewInvalid(kind.GroupKind(), o.GetName(), field.ErrorList{Refusal(Fields(o))})
}

// Identifier implements runtime.Encoder.
func (s serializer) Identifier() runtime.Identifier {
	return runtime.Identifier("newer,"+strconv.FormatBool(s.stores)+",") + s.Serializer.Identifier()
}

// unknown are the fields that nobody knows, in the order in which they were found. The library stops taking note of
// them at some number: then overflows tells that there may be more.
type unknown struct {
	paths     []string
	overflows bool
}

// maxNoted is how many fields the library takes note of.
const maxNoted = 100

// unknownIn reads what the library has found.
func unknownIn(err error) (out unknown) {
	strict, is := runtime.AsStrictDecodingError(err)
	if !is {
		return out
	}
	out.overflows = len(strict.Errors()) >= maxNoted
	out.paths = pathsOf(strict.Errors())
	return out
}

// pathsOf are the paths of the fields that nobody knows.
func pathsOf(found []error) (out []string) {
	for _, e := range found {
		quoted, is := strings.CutPrefix(e.Error(), "unknown field ")
		if !is {
			continue // a field that is there twice: the last one counts
		}
		path, err := strconv.Unquote(quoted)
		if err != nil {
			path = quoted
		}
		out = append(out, path)
	}
	return out
}

// besideMetadata leaves out fields of metadata, which are Kubernetes' own: none of ours follows from them.
func besideMetadata(paths []string) (out []string) {
	for _, p := range paths {
		if !strings.HasPrefix(p, "metadata.") {
			out = append(out, p)
		}
	}
	return out
}

// markItems marks the objects of a list that was read of that text.
func markItems(data []byte, list runtime.Object, found unknown) error {
	var of map[int][]string
	if found.overflows {
		var err error
		of, err = eachOf(data, list)
		if err != nil {
			return err
		}
	} else {
		of = map[int][]string{}
		for _, path := range found.paths {
			if at, rest, is := itemOf(path); is {
				of[at] = append(of[at], rest)
			}
		}
	}
	at := 0
	return meta.EachListItem(list, func(item runtime.Object) error {
		if o, is := item.(metav1.Object); is {
			mark(o, besideMetadata(of[at]))
		}
		at++
		return nil
	})
}

// itemOf takes a path such as items[3].spec.x apart.
func itemOf(path string) (at int, rest string, is bool) {
	inner, is := strings.CutPrefix(path, "items[")
	if !is {
		return 0, "", false
	}
	number, rest, is := strings.Cut(inner, "].")
	at, err := strconv.Atoi(number)
	return at, rest, is && err == nil
}

// eachOf finds the fields that nobody knows in each object of a list.
func eachOf(data []byte, list runtime.Object) (map[int][]string, error) {
	var raw struct {
		Items []json.RawMessage `json:"items"`
	}
	err := json.Unmarshal(data, &raw)
	if err != nil {
		return nil, fmt.Errorf("read the objects of a list one by one: %w", err)
	}
	out, at := map[int][]string{}, 0
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if at >= len(raw.Items) {
			return nil
		}
		again := reflect.New(reflect.TypeOf(item).Elem()).Interface()
		found, err := kjson.UnmarshalStrict(raw.Items[at], again, kjson.DisallowUnknownFields)
		if err != nil {
			return fmt.Errorf("read object %d of a list again: %w", at, err)
		}
		out[at] = pathsOf(found)
		at++
		return nil
	})
	return out, err
}
