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
		"everynode.1":                   `everynode - One copy of a daemon on every machine you choose`,
		"everynode-doctor.1":            `\fB-o\fP, \fB--output\fP`,
		"everynode-certificates-list.1": `\fBeverynode-certificates(1)\fP`,
		"everynode-controller.1":        "everynode controller --print-crds | kubectl apply -f -\n",
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
		_, err := cmd.Output()
		for line := range strings.Lines(complaints.String()) {
			// A long word in a narrow column is no fault of the page.
			if !strings.Contains(line, "cannot adjust line") && !strings.Contains(line, "can't break line") {
				t.Errorf("man says of %s: %s", page, line)
			}
		}
		if err != nil {
			t.Errorf("man shows no %s: %v", page, err)
		}
	}
}
