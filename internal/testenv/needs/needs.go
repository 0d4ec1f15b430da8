// Package needs skips tests that a quick run has no time for, or the machine cannot run.
package needs

import (
	"os"
	"path/filepath"
	"testing"
)

// Root skips a test unless root runs it, and with -short. The reason says what needs root.
func Root(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip(reason)
	}
}

// Everynode returns the path of the program under test: bin/everynode of the repository, whose root is given, or what
// the variable EVERYNODE_BINARY names. A test fails if it is missing. With -short a test is skipped.
func Everynode(t testing.TB, root string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs the program")
	}
	path := os.Getenv("EVERYNODE_BINARY")
	if path == "" {
		path = filepath.Join(root, "bin", "everynode")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("the program under test is missing: %v; run make build, or set EVERYNODE_BINARY", err)
	}
	return path
}
