package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/testenv"
)

// The verbs find the control plane by its data folder, and say so when there is none.
func TestSecretsVerbs(t *testing.T) {
	env := testenv.Start(t)
	run := func(args ...string) (code int, out, errOut string) {
		var stdout, stderr bytes.Buffer
		code = Execute(t.Context(), append([]string{"secrets"}, args...), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	if code, out, errOut := run("status", "--data-dir", env.DataDir()); code != 0 || !strings.Contains(out, "secrets    key-1   ") || !strings.Contains(out, "in use") {
		t.Errorf("status: %d %s %s", code, out, errOut)
	}
	if code, out, errOut := run("encrypt", "--data-dir", env.DataDir()); code != 0 || out != "Done: Secrets are encrypted with key-1.\n" {
		t.Errorf("encrypt: %d %s %s", code, out, errOut)
	}
	if code, out, errOut := run("rewrite", "--data-dir", env.DataDir()); code != 0 || out != "Rewritten: 0; left: 0.\n" {
		t.Errorf("rewrite: %d %s %s", code, out, errOut)
	}
	env.Stop()
	for _, verb := range []string{"status", "encrypt", "rotate-key", "rewrite"} {
		if code, _, errOut := run(verb, "--data-dir", t.TempDir()); code != 1 || !strings.Contains(errOut, "no cluster is found in") {
			t.Errorf("%s without a cluster: %d %s", verb, code, errOut)
		}
		if code, _, errOut := run(verb, "--data-dir", env.DataDir()); code != 1 || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%s without a server: %d %s", verb, code, errOut)
		}
	}
}

func TestPlanRefusesWhatItDoesNotKnow(t *testing.T) {
	for want, args := range map[string][]string{
		"no file is named":           {"plan"},
		"--output text is not known": {"plan", "-f", "x", "-o", "text"},
		"no such file":               {"plan", "-f", "/no/such/file"},
		"there is no DaemonSet, DaemonSetVariant, NodeStartup, ConfigMap or Secret in it": {"plan", "-f", "/dev/null"},
		`takes no argument, but got "x"`: {"plan", "x"},
	} {
		var out bytes.Buffer
		if code := Execute(t.Context(), args, &out, &out); code != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("%q ends with %d and says %q, want %q", args, code, out.String(), want)
		}
	}
}

func TestWhyRefusesWhatItDoesNotKnow(t *testing.T) {
	for want, args := range map[string][]string{
		"--output yaml is not known":     {"why", "n", "-o", "yaml"},
		"--verdict Bad is not known":     {"why", "ds/x", "--verdict", "Bad"},
		"leave out n":                    {"why", "n", "--verdict", "Waiting"},
		"there is no kubeconfig":         {"why", "n", "--data-dir", t.TempDir()},
		"accepts between 1 and 2 arg(s)": {"why"},
		"no folder is named":             {"why", "n", "--data-dir", ""},
	} {
		var out bytes.Buffer
		if code := Execute(t.Context(), args, &out, &out); code != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("%q ends with %d and says %q, want %q", args, code, out.String(), want)
		}
	}
}
