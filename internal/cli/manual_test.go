package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every command that people see has a manual page, which man understands.
func TestManual(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "man")
	var out, errOut bytes.Buffer
	if code := Execute(t.Context(), []string{"manual", folder}, &out, &errOut); code != 0 {
		t.Fatalf("code %d: %s", code, &errOut)
	}
	for page, want := range map[string]string{
		"everynode.1":                   `\- One copy of a daemon on every machine you choose`,
		"everynode-doctor.1":            `.BR \-o ", " \-\-output " string"`,
		"everynode-certificates-list.1": `.BR everynode\-certificates (1)`,
		"everynode-controller.1":        "everynode controller \\-\\-print\\-crds | kubectl apply \\-f \\-\n.fi\n",
	} {
		text, err := os.ReadFile(filepath.Join(folder, page))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q (%v):\n%.1500s", page, want, err, text)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "everynode-manual.1")); err == nil {
		t.Error("a command that nobody sees has a page")
	}
	pages, err := filepath.Glob(filepath.Join(folder, "*.1"))
	if err != nil || len(pages) < 25 {
		t.Errorf("there are %d pages", len(pages))
	}
	tool, err := exec.LookPath("man")
	if err != nil {
		t.Skip("the rest needs man")
	}
	for _, page := range pages {
		cmd := exec.CommandContext(t.Context(), tool, "--warnings", "-l", page)
		cmd.Env = append(os.Environ(), "MANPAGER=cat", "LC_ALL=C.UTF-8", "MANWIDTH=100")
		var complaints bytes.Buffer
		cmd.Stderr = &complaints
		if _, err := cmd.Output(); err != nil || complaints.Len() > 0 {
			t.Errorf("man says of %s: %v %s", page, err, &complaints)
		}
	}
}
