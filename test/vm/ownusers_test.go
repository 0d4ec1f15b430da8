package vm

import "testing"

func TestAllOwn(t *testing.T) {
	for _, c := range []struct {
		users, first string
		want         bool
	}{
		{"65536 131071", "65536", true},
		{"65536 131072", "65536", false},
		{"0 65536", "65536", false},
		{"", "65536", false},
		{"65536", "", false},
		{"root", "65536", false},
	} {
		if got := allOwn(c.users, c.first); got != c.want {
			t.Errorf("users %q of the part from %q on: %v", c.users, c.first, got)
		}
	}
	for text, want := range map[string]bool{"         0      65536      65536": true, "0 0 4294967295": false, "0 65536 65536\n1 2 3": false} {
		if got := userMap.MatchString(text); got != want {
			t.Errorf("%q is a part: %v", text, got)
		}
	}
}
