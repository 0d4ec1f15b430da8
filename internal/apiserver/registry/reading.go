package registry

import (
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

// checkedCodecs refuse what a kind says is unreadable as soon as it is decoded:
// what comes next, such as the bookkeeping of fields, would panic over it.
type checkedCodecs struct {
	runtime.NegotiatedSerializer
	kinds map[reflect.Type]resource.Definition
}

func newCheckedCodecs(codecs runtime.NegotiatedSerializer, kinds []resource.Definition) checkedCodecs {
	c := checkedCodecs{codecs, map[reflect.Type]resource.Definition{}}
	for _, k := range kinds {
		c.kinds[reflect.TypeOf(k.New())] = k
	}
	return c
}

// DecoderToVersion implements runtime.NegotiatedSerializer.
func (c checkedCodecs) DecoderToVersion(d runtime.Decoder, v runtime.GroupVersioner) runtime.Decoder {
	return checkedDecoder{c.NegotiatedSerializer.DecoderToVersion(d, v), c.kinds}
}

type checkedDecoder struct {
	runtime.Decoder
	kinds map[reflect.Type]resource.Definition
}

// Decode implements runtime.Decoder.
func (d checkedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind,
	into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := d.Decoder.Decode(data, defaults, into)
	// An object with unknown fields is complained of, and used all the same.
	if obj == nil || err != nil && !runtime.IsStrictDecodingError(err) {
		return obj, kind, err
	}
	if k, ok := d.kinds[reflect.TypeOf(obj)]; ok {
		if err := k.Unreadable(obj); err != nil {
			return nil, kind, err
		}
	}
	return obj, kind, err
}
