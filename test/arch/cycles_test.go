package arch

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// fileCycles returns, by package, how many files the largest group has in which each file needs each other one.
func fileCycles(t *testing.T, packages []pkg) map[string]int {
	t.Helper()
	files := token.NewFileSet()
	from := importer.ForCompiler(files, "gc", compiled(t, packages))
	out := map[string]int{}
	for _, p := range packages {
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, file)
		}
		out[p.path()] = largestCycle(needs(t, files, from, p.ImportPath, parsed))
	}
	return out
}

// compiled finds what the compiler wrote of the packages that these import.
func compiled(t *testing.T, packages []pkg) importer.Lookup {
	t.Helper()
	arguments := []string{"list", "-export", "-deps", "-json=ImportPath,Export"}
	for _, p := range packages {
		arguments = append(arguments, p.ImportPath)
	}
	cmd := exec.Command("go", arguments...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if err != nil {
		t.Fatalf("compile the packages: %v: %s", err, &stderr)
	}
	exports := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(data)); decoder.More(); {
		var p struct{ ImportPath, Export string }
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
}

// needs returns, for each file of a package, the files that declare what it uses.
func needs(
	t *testing.T, files *token.FileSet, from types.Importer, path string, parsed []*ast.File,
) map[string]map[string]bool {
	t.Helper()
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checked, err := (&types.Config{Importer: from}).Check(path, files, parsed, info)
	if err != nil {
		t.Fatalf("check the types of %s: %v", path, err)
	}
	out := map[string]map[string]bool{}
	for id, object := range info.Uses {
		if object.Pkg() != checked {
			continue
		}
		user, declarer := files.Position(id.Pos()).Filename, files.Position(object.Pos()).Filename
		if user == declarer {
			continue
		}
		if out[user] == nil {
			out[user] = map[string]bool{}
		}
		out[user][declarer] = true
	}
	return out
}

// largestCycle returns the size of the largest group of nodes that all reach each other.
func largestCycle(edges map[string]map[string]bool) int {
	reach := map[string]map[string]bool{}
	for node := range edges {
		seen := map[string]bool{}
		for todo := []string{node}; len(todo) > 0; {
			last := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for next := range edges[last] {
				if !seen[next] {
					seen[next], todo = true, append(todo, next)
				}
			}
		}
		reach[node] = seen
	}
	largest := 0
	for node, seen := range reach {
		mutual := slices.Collect(maps.Keys(seen))
		mutual = slices.DeleteFunc(mutual, func(other string) bool { return !reach[other][node] })
		largest = max(largest, len(mutual))
	}
	return largest
}

func TestCyclesOfFilesAreFound(t *testing.T) {
	files := token.NewFileSet()
	var parsed []*ast.File
	for name, body := range map[string]string{
		"a": "type A struct{ b B }",
		"b": "type B struct{ n int }; func (b B) up() { b.down() }",
		"c": "func (b B) down() { _ = b.n; leaf() }", // b and c need each other
		"d": "func leaf() {}",
	} {
		file, err := parser.ParseFile(files, name, "package p\n"+body, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	got := needs(t, files, importer.Default(), "p", parsed)
	want := map[string]map[string]bool{"a": {"b": true}, "b": {"c": true}, "c": {"b": true, "d": true}}
	if !maps.EqualFunc(got, want, maps.Equal) {
		t.Errorf("the files need %v, want %v", got, want)
	}
	if n := largestCycle(got); n != 2 {
		t.Errorf("the largest cycle has %d files, want 2", n)
	}
}
