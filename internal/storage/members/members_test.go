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
		{"v2.37.0", "v1.37.0", "too new"},
		{"v1.37.0", "v2.0.0", "too old"},
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

func TestCheckData(t *testing.T) {
	for _, test := range []struct {
		joining, ours int
		want          string
	}{
		{1, 1, ""}, {0, 1, ""}, {1, 0, ""}, {0, 0, ""}, {2, 2, ""},
		{1, 2, "knows data up to version 1, and this cluster's has version 2; install"}, {0, 2, "too old"},
		{2, 1, "writes data of version 2, and this cluster's has version 1; upgrade the servers that are there first"}, {2, 0, "too new"},
	} {
		err := CheckData(test.joining, test.ours)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d joins %d: %v, want %q", test.joining, test.ours, err, test.want)
		}
	}
}
