package enough

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// All of a list is looked at, unless there are more errors than anybody is told of, or who looks ends.
func TestEach(t *testing.T) {
	list := make([]string, 5*Errors)
	for _, c := range []struct{ every, stop, want int }{{0, 0, len(list)}, {1, 0, Errors + 1}, {2, 0, 2*Errors + 1}, {1, 7, 7}} {
		var errs field.ErrorList
		seen := 0
		for i, entry := range Each(list, &errs) {
			if i != seen || entry != "" {
				t.Fatalf("entry %d comes as %d, %q", seen, i, entry)
			}
			seen++
			if c.every > 0 && i%c.every == 0 {
				errs = append(errs, field.Required(nil, ""))
			}
			if seen == c.stop {
				break
			}
		}
		if seen != c.want {
			t.Errorf("with an error in every %d: %d entries are looked at, want %d", c.every, seen, c.want)
		}
	}
}
