package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/local/layout"
)

func TestFaultsAreReadBeforeAnythingStarts(t *testing.T) {
	good, bad := filepath.Join(t.TempDir(), "good.yaml"), filepath.Join(t.TempDir(), "bad.yaml")
	for path, text := range map[string]string{good: "faults: [{name: f, powerLoss: {}}]", bad: "faults: [{name: f, plague: {}}]"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, args := range map[string][]string{
		"--faults is about simulated nodes, and there are none": {"server", "--faults", good},
		`unknown field "plague"`:                                {"server", "--simulated-nodes", "2", "--faults", bad},
		"give --runtime simulated as well":                      {"up", "--faults", good},
		`bad.yaml: json: unknown field`:                         {"up", "--runtime", "simulated", "--faults", bad},
		"no such file":                                          {"up", "--runtime", "simulated", "--faults", good + "x"},
	} {
		var out bytes.Buffer
		if code := Execute(t.Context(), append(args, "--data-dir", t.TempDir()), &out, &out); code != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("%q ends with %d and says %q, want %q", args, code, out.String(), want)
		}
	}
	o := layout.Options{Runtime: layout.RuntimeSimulated}
	if err := addFaults(&o, good); err != nil || len(o.ServerFlags) != 1 || o.ServerFlags[0] != "--faults="+good {
		t.Errorf("a good file gives the control plane %q, %v", o.ServerFlags, err)
	}
}
