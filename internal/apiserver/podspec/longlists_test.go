package podspec

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Whoever may create pods must not keep a server busy with a long list. These lists are longer than a request can
// hold: looking through
// the list for each of its entries would take so many steps that go test ends it, and shows where it was.
func TestLongListsAreLookedAtOnce(t *testing.T) {
	const n = 1_000_000
	at, names := field.NewPath("list"), sets.New[string]()
	entries, wanted := make([]corev1.PodResourceClaim,
		n), &corev1.ResourceRequirements{Claims: make([]corev1.ResourceClaim, n)}
	for i := range n {
		name := fmt.Sprint("c", i)
		names.Insert(name)
		entries[i], wanted.Claims[i] = corev1.PodResourceClaim{Name: name,
			ResourceClaimName: new("c")}, corev1.ResourceClaim{Name: name}
	}
	for what, look := range map[string]func() int{
		"claims of a pod":       func() int { return len(validateResourceClaims(entries, at)) },
		"claims of a container": func() int { return len(validateRequirements(wanted, names, at)) },
	} {
		if found := look(); found > 0 {
			t.Errorf("%s: %d are wrong", what, found)
		}
	}
	for list, one := range map[string]string{
		fmt.Sprint(validateResourceClaims([]corev1.PodResourceClaim{entries[3], entries[3]},
			at)): `list[1].name: Duplicate value: "c3"`,
		fmt.Sprint(validateRequirements(&corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "c3"},
			{Name: "c3"}}}, names, at)): `list.claims[1]: Duplicate value: "c3"`,
	} {
		if list != "["+one+"]" {
			t.Errorf("%s, want %s", list, one)
		}
	}
}
