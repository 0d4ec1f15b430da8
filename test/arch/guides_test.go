package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// namedFile is a Go file in a guide's text. One in capitals, such as KIND/strategy.go, stands for many.
var namedFile = regexp.MustCompile("`([a-z0-9_./-]+\\.go)`")

// Who follows a guide into the code must find the file that it names: below the guide, or anywhere if it is one of the
// whole project's.
func TestFilesThatGuidesNameAreThere(t *testing.T) {
	var files, guides []string
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != "..",
			entry.IsDir() && entry.Name() == "bin":
			return fs.SkipDir
		case strings.HasSuffix(path, ".go"):
			files = append(files, strings.TrimPrefix(path, "../.."))
		case strings.HasSuffix(path, ".md"):
			guides = append(guides, strings.TrimPrefix(path, "../.."))
		}
		return nil
	})
	if err != nil || len(files) < 500 || len(guides) < 50 {
		t.Fatalf("found %d files and %d guides: %v", len(files), len(guides), err)
	}
	for _, guide := range guides {
		text, err := os.ReadFile("../.." + guide)
		if err != nil {
			t.Fatal(err)
		}
		below := filepath.Dir(guide) + "/"
		if below == "//" || strings.HasPrefix(guide, "/docs/") {
			below = "/"
		}
		for _, found := range namedFile.FindAllStringSubmatch(string(text), -1) {
			if !isBelow(files, below, found[1]) {
				t.Errorf("%s names %s, which is not there", strings.TrimPrefix(guide, "/"), found[1])
			}
		}
	}
}

// isBelow reports whether a file of that name is in a folder, in one below it, or where a path from the top says.
func isBelow(files []string, folder, name string) bool {
	for _, file := range files {
		if file == "/"+name || strings.HasPrefix(file, folder) && strings.HasSuffix(file, "/"+name) {
			return true
		}
	}
	return false
}
