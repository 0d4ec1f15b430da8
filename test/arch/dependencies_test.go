package arch

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const dependenciesPage = "docs/dependencies.md"

// goMod is what `go mod edit -json` says of a module file.
type goMod struct {
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Tool []struct{ Path string }
}

func readGoMod(t *testing.T, path string) (mod goMod) {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", path).Output()
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return mod
}

// requires says whether the file requires a module, directly or not.
func (m goMod) requires(module string) bool {
	for _, r := range m.Require {
		if r.Path == module {
			return true
		}
	}
	return false
}

// explained lists the modules that have a row in the page, except those under
// the heading of what is not used.
func explained(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("../..", dependenciesPage))
	if err != nil {
		t.Fatal(err)
	}
	used, _, found := strings.Cut(string(page), "\n## Not used\n")
	if !found {
		t.Fatalf("%s has no part \"Not used\"", dependenciesPage)
	}
	var modules []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(used, -1) {
		modules = append(modules, row[1])
	}
	return modules
}

func TestEveryDependencyHasAReason(t *testing.T) {
	rows := explained(t)
	for _, r := range readGoMod(t, "../../go.mod").Require {
		if !r.Indirect && !slices.Contains(rows, r.Path) {
			t.Errorf("go.mod requires %s, and %s does not say what for", r.Path, dependenciesPage)
		}
	}
	for _, file := range toolFiles {
		checkTools(t, file, rows)
	}
}

// toolFiles are the module files of the tools.
var toolFiles = []string{"tools/go.mod", "tools/nfpm.mod", "tools/deepcopy.mod", "test/s3server/go.mod"}

func checkTools(t *testing.T, file string, rows []string) {
	t.Helper()
	for _, tool := range readGoMod(t, filepath.Join("../..", file)).Tool {
		if !slices.ContainsFunc(rows, func(row string) bool { return strings.HasPrefix(tool.Path, row+"/") }) {
			t.Errorf("%s has the tool %s, and %s does not say what for", file, tool.Path, dependenciesPage)
		}
	}
}

func TestNoReasonOutlivesItsDependency(t *testing.T) {
	mods := []goMod{readGoMod(t, "../../go.mod")}
	for _, file := range toolFiles {
		mods = append(mods, readGoMod(t, filepath.Join("../..", file)))
	}
	rows := explained(t)
	for i, module := range rows {
		if !slices.ContainsFunc(mods, func(m goMod) bool { return m.requires(module) }) {
			t.Errorf("%s explains %s, which no module file requires", dependenciesPage, module)
		}
		if slices.Contains(rows[:i], module) {
			t.Errorf("%s explains %s twice", dependenciesPage, module)
		}
	}
}
