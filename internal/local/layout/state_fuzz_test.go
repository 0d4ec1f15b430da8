package layout

import (
	"encoding/json"
	"testing"
)

// FuzzState reads state files. What it takes, it would write again as it was.
func FuzzState(f *testing.F) {
	const dir = "/var/lib/everynode"
	good := testState(dir)
	raw, err := json.Marshal(good)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		string(raw), "", "{}", "null", `{"version":1}`, "\x00",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := parseState("local.json", dir, data); err == nil {
			if s.Plan.DataDir != dir || s.Plan.ID != ClusterID(dir) {
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
	})
}
