package objectversion

import "testing"

func TestOlder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"9", "10", true}, {"10", "9", false}, {"10", "10", false},
		{"", "10", false}, {"10", "", false}, {"x", "10", false}, {"9", "x", false},
	} {
		if got := Older(c.a, c.b); got != c.want {
			t.Errorf("%q is older than %q: %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
