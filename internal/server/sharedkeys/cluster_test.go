package sharedkeys

import (
	"testing"

	"github.com/everynode/everynode/internal/pki"
)

// Servers of two versions compare keys by this: it is a promise to those of before.
func TestHashOfKeysDoesNotDependOnTheVersion(t *testing.T) {
	keys := Set{Cluster: map[string][]byte{}, Stored: []byte("stored")}
	for _, name := range pki.AgreedFiles {
		keys.Cluster[name] = []byte(name)
	}
	const want = "8639d0956ff4fa0da7c1d519426dba780b5f99fdd8ae9b5e72293b2a26bc365e"
	if got := keys.Hash(); got != want {
		t.Errorf("the hash is %s, and was %s", got, want)
	}
	keys.Cluster["of-the-next-version.key"] = []byte("x")
	if got := keys.Hash(); got != want {
		t.Error("a file that servers of before do not know changes the hash")
	}
	for _, name := range pki.AgreedFiles {
		if !pki.ClusterFile(name) {
			t.Errorf("%s is compared and not shared", name)
		}
		was := keys.Cluster[name]
		keys.Cluster[name] = []byte("other")
		if keys.Hash() == want {
			t.Errorf("another %s does not change the hash", name)
		}
		keys.Cluster[name] = was
	}
	// What a server of the next version sends besides does not matter either.
	sent := []byte(`{"Cluster":{"ca.crt":"YQ==","of-the-next-version.key":"Yg=="},"Stored":"Yw==","Next":{"more":1}}`)
	if hashSent(sent) != (Set{Cluster: map[string][]byte{"ca.crt": []byte("a")}, Stored: []byte("c")}).Hash() {
		t.Error("what is sent besides changes the hash")
	}
}
