package stories

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// block is a piece of a page between fences, with its language.
var block = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// TestTutorial does what the tutorial says: it writes its files and runs its commands, in
// their order and as they stand there, but for the port.
func TestTutorial(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, binary := t.TempDir(), needs.Everynode(t, "../..")
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	environment := append(os.Environ(), "HOME="+dir, "PATH="+filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"), "KUBECONFIG=")
	t.Cleanup(func() {
		// What a tutorial leaves that failed.
		if _, err := os.Stat(filepath.Join(dir, "cluster")); err == nil {
			if out, err := exec.Command(binary, "down", "--data-dir", filepath.Join(dir, "cluster"), "--purge").CombinedOutput(); err != nil {
				t.Errorf("remove the cluster: %v\n%s", err, out)
			}
		}
	})
	script, commands := "set -euo pipefail\n", 0
	for _, b := range block.FindAllStringSubmatch(string(page), -1) {
		text := strings.ReplaceAll(b[2], "--api-port 7443", "--api-port "+port)
		switch b[1] {
		case "yaml":
			name, ok := strings.CutPrefix(strings.SplitN(text, "\n", 2)[0], "# ")
			if !ok || filepath.Base(name) != name {
				t.Fatalf("a file of the tutorial has no name in its first line:\n%s", text)
			}
			script += "cat >" + name + " <<'END OF FILE'\n" + text + "END OF FILE\n"
		case "sh":
			if strings.HasPrefix(text, "make build\n") {
				continue // That has been done.
			}
			script += "set -x\n" + text + "{ set +x; } 2>/dev/null\n"
			commands += strings.Count(text, "\n")
		default:
			t.Fatalf("a block of the tutorial is neither commands nor a file:\n%s", text)
		}
	}
	if commands < 20 {
		t.Fatalf("the tutorial has only %d commands", commands)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir, cmd.Env = dir, environment
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`(?m)^agent +60 +60 +60 +60 +60 `,
		`(?m)^60 nodes: 60 change`,
		`RolledBack: revision 2 \(\w+\) failed on \d of 3`,
		`(?m)^PROBLEM +daemonset/kube-system/agent: its change has failed \(RolledBack\)`,
		`kube-system/agent on sim-0050: Waiting`,
		`(?m)^Looked at the cluster at https://127.0.0.1:\d+ \(60 nodes\): nothing is wrong\.$`,
		`(?m)^60 nodes: 60 would follow it when they join`,
		`Node sim-0061 starts group 1 of 1 of NodeStartup default; it waits for`,
		`"key":"everynode.io/starting"`,
		`(?m)^nodestartup.everynode.io/default condition met$`,
		`(?m)^everynode_rollout_phase\{daemonset="agent",namespace="kube-system",phase="Complete"\} 1$`,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("what it printed does not match %q", want)
		}
	}
	if t.Failed() {
		t.Logf("it printed\n%s", out)
	}
}
