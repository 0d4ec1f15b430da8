package stories

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/everynode/everynode/internal/testenv/needs"
)

var newest = flag.Bool("newest", false, "run what needs a newer containerd than Debian's, which must be first in PATH")

// TestOnNewestContainerd runs the scripts of what Debian's containerd cannot do. They say which containerd they found.
func TestOnNewestContainerd(t *testing.T) {
	if !*newest {
		t.Skip("needs a newer containerd; run: make newest")
	}
	needs.Root(t, "real nodes need root")
	files, err := filepath.Glob("testdata/newest/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts are found: %v", err)
	}
	runStories(t, "containerd", files)
}
