package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	core = "internal/controller/daemonset"
	// hooks is the package of the hook; it exists in the overlay only.
	hooks = core + "/hooks"
)

// walked are the folders whose functions are counted, with all below them.
var walked = []string{"course", "matrix", "placement"}

// walk builds the packages with a hook in each function, plays a scenario of matrix' tests and prints what it says.
func walk() error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "measure")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	replaced := map[string]string{
		filepath.Join(root, hooks, "hooks.go"):              filepath.Join(root, "test/measure/testdata/hooks.go.txt"),
		filepath.Join(root, core, "matrix/zz_walk_test.go"): filepath.Join(root, "test/measure/testdata/walk_test.go.txt"),
	}
	err = filepath.WalkDir(filepath.Join(root, core), func(path string, d fs.DirEntry, err error) error {
		name, below := strings.CutPrefix(path, filepath.Join(root, core)+"/")
		part, _, _ := strings.Cut(name, "/")
		if err != nil || d.IsDir() || !below || !slices.Contains(walked, part) || !isProduction(path) {
			return err
		}
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		err = hook(path, copied, name)
		if err != nil {
			return fmt.Errorf("hook %s: %w", path, err)
		}
		replaced[path] = copied
		return nil
	})
	if err != nil {
		return err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay="+file, "-run=^TestWalk$", "-v",
		"./"+core+"/matrix")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("play the scenario: %w", err)
	}
	return nil
}

// hook copies a file with a hook at the entry of each named function.
func hook(path, to, name string) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, src, 0)
	if err != nil {
		return err
	}
	var out strings.Builder
	at := 0
	insert := func(pos token.Pos, text string) {
		offset := files.Position(pos).Offset
		out.Write(src[at:offset])
		out.WriteString(text)
		at = offset
	}
	insert(parsed.Name.End(), "; import hooks \"github.com/everynode/everynode/"+hooks+"\"")
	for _, decl := range parsed.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
			insert(f.Body.Lbrace+1, fmt.Sprintf(" hooks.Enter(%q, %q);", name, f.Name.Name))
		}
	}
	out.Write(src[at:])
	out.WriteString("\nvar _ = hooks.Enter\n")
	return os.WriteFile(to, []byte(out.String()), 0o600)
}
