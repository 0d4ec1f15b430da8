package registry

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/scheme"
)

// textCodecs leave out protobuf. A client that would rather have that gets what it
// names next, which is how clients ask for custom resources.
type textCodecs struct{ checkedCodecs }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (c textCodecs) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(c.checkedCodecs.SupportedMediaTypes()), func(i runtime.SerializerInfo) bool {
		return i.MediaType == runtime.ContentTypeProtobuf
	})
}

// textVersions are the versions with kinds that cannot be written as protobuf.
func textVersions(kinds []resource.Definition) map[schema.GroupVersion]bool {
	out := map[schema.GroupVersion]bool{}
	for _, k := range kinds {
		if !scheme.HasBinaryForm(k.New()) {
			out[k.GroupVersion] = true
		}
	}
	return out
}
