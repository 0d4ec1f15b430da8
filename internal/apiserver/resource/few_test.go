package resource

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

// A client is told of a hundred errors, of ten where they are long, and then how many there are.
func TestFewErrorsAreTold(t *testing.T) {
	long := strings.Repeat("x", longText)
	for _, c := range []struct{ short, long, told int }{
		{0, 0, 0}, {100, 0, 100}, {101, 0, 100}, {5000, 0, 100}, {0, 10, 10}, {0, 11, 10}, {50, 1, 51}, {50, 2, 51}, {3, 50, 10},
	} {
		var errs field.ErrorList
		for i := range c.short {
			errs = append(errs, field.Invalid(nil, i, "short"))
		}
		for range c.long {
			errs = append(errs, field.Invalid(nil, long, "long"))
		}
		got := few(errs)
		last := ""
		if len(got) > c.told {
			last = got[len(got)-1].Error()
			got = got[:len(got)-1]
		}
		want := ""
		if c.told < c.short+c.long {
			want = fmt.Sprintf(`object: Invalid value: %d: has so many errors; those above are the first`, c.short+c.long)
		}
		if len(got) != c.told || last != want {
			t.Errorf("of %d short errors and %d long ones %d are told, and %q; want %d and %q", c.short, c.long, len(got), last, c.told, want)
		}
		for i, err := range got {
			if err != errs[i] {
				t.Fatalf("error %d is another", i)
			}
		}
	}
	if enough.Errors < enough.Told {
		t.Error("checks end before they have what is told")
	}
}
