package local

import (
	"encoding/json"
	"testing"
)

// FuzzState reads state files and what the system says of processes. What it
// takes, it would write again as it was.
func FuzzState(f *testing.F) {
	const dir = "/var/lib/everynode"
	good := testState(dir)
	raw, err := json.Marshal(good)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		string(raw), "", "{}", "null", `{"version":1}`, "\x00", "1 (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 100 0", "1 (a) b) Z 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 100 0", ") ", "1 (", "containerd github.com/containerd/containerd v1.7.2 abc",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := parseState("local.json", dir, data); err == nil {
			if s.Plan.DataDir != dir || s.Plan.ID != clusterID(dir) {
				t.Errorf("took the state of another cluster: %+v", s)
			}
			raw, err := json.Marshal(s)
			if err != nil {
				t.Fatalf("cannot be written again: %v", err)
			}
			again, err := parseState("local.json", dir, raw)
			if err != nil {
				t.Fatalf("cannot be read again: %v", err)
			}
			if twice, _ := json.Marshal(again); string(twice) != string(raw) {
				t.Errorf("changed by being written:\n%s\n%s", raw, twice)
			}
		}
		// These need only survive.
		_, _, _, _ = parseStat(string(data))
		_ = parseContainerdVersion(string(data))
	})
}
