package apiserver

import (
	"testing"
)

// A Lease that two servers shared would hide the one that has not the keys yet.
func TestEachServerHasALeaseForItsKeys(t *testing.T) {
	seen := map[string]string{}
	for _, c := range [][3]string{
		{"host", "/data/encryption.yaml", "a"}, {"host", "/data/encryption.yaml", "b"}, {"host", "/other/encryption.yaml",
			"a"}, {"other", "/data/encryption.yaml", "a"},
	} {
		name := keysLease(c[0], c[1], c[2])
		if before, taken := seen[name]; taken {
			t.Errorf("%v has the Lease of %s", c, before)
		}
		seen[name] = c[0] + " " + c[1] + " " + c[2]
	}
}
