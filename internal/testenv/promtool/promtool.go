// Package promtool finds the program with which tests check rules for Prometheus.
package promtool

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Find returns where it is: installed, or in the folder bin of the repository, whose root is given. A test without it
// is skipped, with the command that gets it.
func Find(t testing.TB, root string) string {
	t.Helper()
	if installed, err := exec.LookPath("promtool"); err == nil {
		return installed
	}
	made, err := filepath.Abs(filepath.Join(root, "bin", "promtool"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath(made); err != nil {
		t.Skip("promtool is not there; run: hack/promtool.sh")
	}
	return made
}
