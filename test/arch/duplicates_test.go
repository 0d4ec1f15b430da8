package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// searches are functions that look through a list.
var searches = []string{"Contains", "ContainsFunc", "Index", "IndexFunc"}

// endsEarly are searches through the rest of a list in a loop that ends with the first one.
var endsEarly = []string{"internal/controller/statefulset/plan/plan.go"}

// Whoever may send a long list must not keep a server busy with the square of its length: what was there before is kept in
// a set. Searching or walking the part of a list before or after the current entry, in a loop over it, is that square.
func TestNoListIsSearchedForEachOfItsEntries(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("../../internal", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.Contains(path, "zz_generated") {
			return err
		}
		seen++
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		if slices.Contains(endsEarly, strings.TrimPrefix(path, "../../")) {
			return nil
		}
		for _, at := range squareSearches(file) {
			t.Errorf("%s: a search through a part of the list for each of its entries; keep those before in a set",
				files.Position(at))
		}
		return nil
	})
	if err != nil || seen < 500 {
		t.Fatalf("looked at %d files: %v", seen, err)
	}
}

func TestSearchesForEachEntryAreFound(t *testing.T) {
	for body, want := range map[string]int{
		"for i, a := range list { slices.Contains(list[:i], a) }":                        1,
		"for i, a := range list { if true { slices.ContainsFunc(o.list[i+1:], f(a)) } }": 1,
		"for i := range list { slices.IndexFunc(list[:i], f) }":                          1,
		"for i, a := range list { for _, b := range list[:i] { same(a, b) } }":           1,
		"for i := range list { for _, b := range o.list[i+1:] { same(b) } }":             1,
		"for i := 0; i < n; i++ { slices.Contains(list[:i], list[i]) }":                  1,
		"for i := n; i > 0; i-- { for range list[:i] { f() } }":                          1,
		"for i, a := range list { slices.Contains(list[:n], a) }":                        0,
		"for i, a := range list { for _, b := range list[:n] { same(a, b) } }":           0,
		"for _, a := range list { for _, b := range list[1:] { same(a, b) } }":           0,
		"slices.Contains(list[:i], a)":                                                   0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p; func f() { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := squareSearches(file); len(got) != want {
			t.Errorf("%s: %d found, want %d", body, len(got), want)
		}
	}
}

// squareSearches returns where a list is searched or walked up to, or from, the index of a loop around it.
func squareSearches(file *ast.File) (out []token.Pos) {
	ast.Inspect(file, func(n ast.Node) bool {
		index, body := indexOf(n)
		if index == "" {
			return true
		}
		ast.Inspect(body, func(n ast.Node) bool {
			part, ok := lookedThrough(n).(*ast.SliceExpr)
			if ok && (names(part.High, index) || names(part.Low, index)) {
				out = append(out, n.Pos())
			}
			return true
		})
		return true
	})
	return out
}

// indexOf returns the variable that a loop counts with, and the loop's body. It is empty for what is no such loop.
func indexOf(n ast.Node) (string, *ast.BlockStmt) {
	switch loop := n.(type) {
	case *ast.RangeStmt:
		if index, ok := loop.Key.(*ast.Ident); ok && index.Name != "_" {
			return index.Name, loop.Body
		}
	case *ast.ForStmt:
		if post, ok := loop.Post.(*ast.IncDecStmt); ok {
			if index, ok := post.X.(*ast.Ident); ok {
				return index.Name, loop.Body
			}
		}
	}
	return "", nil
}

// lookedThrough returns the list that a search or a loop goes through, if the node is one.
func lookedThrough(n ast.Node) ast.Expr {
	switch n := n.(type) {
	case *ast.CallExpr:
		if isSearch(n) {
			return n.Args[0]
		}
	case *ast.RangeStmt:
		return n.X
	}
	return nil
}

func isSearch(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || !slices.Contains(searches, f.Sel.Name) {
		return false
	}
	from, ok := f.X.(*ast.Ident)
	return ok && from.Name == "slices"
}

// names reports whether an expression, which may be missing, uses a variable.
func names(e ast.Expr, variable string) (found bool) {
	if e == nil {
		return false
	}
	ast.Inspect(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == variable
		return true
	})
	return found
}
