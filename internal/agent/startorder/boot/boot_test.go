package boot_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/everynode/everynode/internal/agent/startorder/boot"
)

// TestAgain: each start of the machine is told of once, the first one that is seen included. What is unknown is an
// error, and no start.
func TestAgain(t *testing.T) {
	dir := t.TempDir()
	source, path := filepath.Join(dir, "source"), filepath.Join(dir, "boot-id")
	say := func(id string) {
		err := os.WriteFile(source, []byte(id), 0o600)
		if err != nil {
			t.Fatal(err)
		}
	}
	ask := func(what, path string, want, wantErr bool) {
		t.Helper()
		again, err := boot.Again(source, path)
		if again != want || err != nil != wantErr {
			t.Errorf("%s: again %t, error %v", what, again, err)
		}
	}
	ask("no source", path, false, true)
	say("\n")
	ask("an empty source", path, false, true)
	say("one\n")
	ask("the first start", path, true, false)
	ask("the agent starts again", path, false, false)
	say("two\n")
	ask("the machine starts again", path, true, false)
	ask("the agent starts again", path, false, false)
	ask("a folder in the file's place", dir, false, true)
	ask("no folder", filepath.Join(dir, "none", "boot-id"), false, true)
}
