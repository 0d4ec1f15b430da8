package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/encryption"
	"github.com/everynode/everynode/internal/encryption/plan"
	"github.com/everynode/everynode/internal/testenv"
)

func TestSecretsStatus(t *testing.T) {
	var out bytes.Buffer
	status := encryption.Status{File: "/d/encryption.yaml", Hash: "x", Problem: "it is broken", Resources: []encryption.Resource{
		{Name: "secrets", Writes: "secretbox:key-2", Stored: map[string]int{"secretbox:key-1": 3, "secretbox:key-2": 4, "": 1}},
	}}
	if err := writeSecretsStatus(&out, status, []plan.Server{{Name: "a", Follows: true}, {Name: "b"}}); err != nil {
		t.Fatal(err)
	}
	want := `RESOURCE   KEY     OBJECTS   STATE
secrets    -       1         to be rewritten
secrets    key-1   3         to be rewritten
secrets    key-2   4         in use

The keys are in /d/encryption.yaml.
The server does not use it as it is now: it is broken
Server b uses other keys: copy that file there.
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
	out.Reset()
	if err := writeSecretsStatus(&out, encryption.Status{File: "/d/encryption.yaml", Resources: []encryption.Resource{{Name: "secrets", Stored: map[string]int{"": 2}}}}, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "2         not encrypted") || !strings.Contains(out.String(), "everynode secrets encrypt") {
		t.Errorf("of data that is plain it says\n%s", &out)
	}
}

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
