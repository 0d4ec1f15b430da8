package scheme

import "k8s.io/apimachinery/pkg/runtime"

// HasBinaryForm says whether an object can be written as protobuf. Everynode's own
// kinds, like custom resources, cannot.
func HasBinaryForm(obj runtime.Object) bool {
	_, ok := obj.(runtime.ProtobufMarshaller)
	return ok
}
