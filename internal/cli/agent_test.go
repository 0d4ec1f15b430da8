package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// The file is read where the command is, flags win over it, and what is wrong is one line.
func TestAgentTakesAFile(t *testing.T) {
	needs.Root(t, "an agent needs root")
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text  string
		flags []string
		want  string
	}{
		"a field that cannot be had": {"enableProfilingHandler: true\n", nil, `enableProfilingHandler true (`},
		"a value of the file":        {"maxPods: -3\n", nil, "--max-pods -3: a node takes one pod at least"},
		// It goes on to what is wrong besides.
		"a flag wins":       {"maxPods: -3\n", []string{"--max-pods", "5", "--image-credential-provider-bin-dir", dir}, "credential providers need --image-credential-provider-config"},
		"too much of a log": {"logging: {verbosity: 8}\n", nil, "logging.verbosity is 8, must be 0 to 5"},
		"a bad address":     {"healthzBindAddress: nowhere\n", nil, `healthzBindAddress "nowhere" is not an IP address`},
	} {
		path := filepath.Join(dir, "kubelet.yaml")
		if err := os.WriteFile(path, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errOut bytes.Buffer
		args := append([]string{"agent", "--server", "https://127.0.0.1:1", "--node-ip", "127.0.0.1", "--node-name", "n", "--data-dir", dir, "--config", path}, c.flags...)
		code := Execute(t.Context(), args, &out, &errOut)
		if code != 1 || !strings.Contains(errOut.String(), c.want) || strings.Count(errOut.String(), "\n") != 1 {
			t.Errorf("%s: code %d, %q, want %q", name, code, errOut.String(), c.want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v (%v), want the file alone", entries, err)
	}
}
