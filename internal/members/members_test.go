package members

import (
	"strings"
	"testing"
)

func TestCheckVersion(t *testing.T) {
	for _, test := range []struct{ joining, ours, want string }{
		{"v1.37.2", "v1.37.2", ""},
		{"v1.37.0", "v1.37.2", ""},
		{"v1.38.0", "v1.37.2", ""},
		{"v1.36.9", "v1.37.0", "too old"},
		{"v1.39.0", "v1.37.0", "too new"},
		{"v2.37.0", "v1.37.0", "too old"},
		{"", "v1.37.0", "is none"},
	} {
		err := CheckVersion(test.joining, test.ours)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s joins %s: %v, want %q", test.joining, test.ours, err, test.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, good := range map[string]bool{"server-1": true, "a": true, "": false, "self": false, "A": false, "a.b": false, "a/b": false} {
		if err := (Joining{Name: name}).Validate(); (err == nil) != good {
			t.Errorf("the name %q: %v", name, err)
		}
	}
}
