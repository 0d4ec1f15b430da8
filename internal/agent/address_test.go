package agent

import (
	"reflect"
	"slices"
	"testing"
)

// Each part of a node that can say a new address is told of one.
func TestEveryPartHearsOfANewAddress(t *testing.T) {
	told := map[reflect.Type]bool{}
	for _, part := range new(node).readdressed() {
		told[reflect.TypeOf(part)] = true
	}
	want := reflect.TypeFor[readdressed]()
	var missing []string
	for _, field := range reflect.VisibleFields(reflect.TypeFor[node]()) {
		if field.Type.Implements(want) && !told[field.Type] {
			missing = append(missing, field.Name)
		}
	}
	if len(told) < 3 || len(missing) > 0 {
		t.Errorf("%d parts are told, and %v are not", len(told), slices.Sorted(slices.Values(missing)))
	}
}
