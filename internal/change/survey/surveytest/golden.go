package surveytest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everynode/everynode/internal/change/survey"
)

var rewrite = flag.Bool("rewrite", false, "write what the code says now into testdata")

// Golden compares with a file of testdata. A line of a text may be wider than a screen
// only if it is one that mayBeWide allows.
func Golden(t *testing.T, name string, got []byte, mayBeWide func(line string) bool) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: it says\n%s\nwant\n%s", name, got, want)
	}
	for _, line := range strings.Split(string(got), "\n") {
		if len(line) > survey.Width && filepath.Ext(name) == ".txt" && !mayBeWide(line) {
			t.Errorf("%s: a line is wider than %d: %q", name, survey.Width, line)
		}
	}
}
