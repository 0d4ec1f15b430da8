package arch

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var rewrite = flag.Bool("rewrite", false,
	"write testdata/ratchet.txt as the code is now, if no rule is broken more often than it allows")

const ratchetFile = "testdata/ratchet.txt"

// debt is how often a folder breaks a rule that the whole tree does not keep yet.
type debt struct{ rule, folder string }

// Rules that the tree does not keep yet. New code keeps them.
const (
	longLine   = "line-over-120-columns"
	actInHead  = "side-effect-in-if-head"
	bannedWord = "banned-words"
	manyFiles  = "files-of-a-package-over-16"
	manyLines  = "hundreds-of-lines-of-a-package-over-25"
	fileCycle  = "files-in-one-cycle-over-10"
)

const (
	maxColumns      = 120
	maxPackageFiles = 16
	maxPackageLines = 2500
	maxFileCycle    = 10
)

// banned are phrases that are not English, or that send the reader elsewhere.
var banned = regexp.MustCompile(`(?i)\b(anew|tells?\s+whether|of\s+which\s+more|whose\s+turn)\b`)

// TestDebtOnlyFalls compares how often each folder breaks a rule with what testdata/ratchet.txt allows.
//
// After moving code between folders, or mending some, `go test ./test/arch -run TestDebtOnlyFalls -rewrite` writes the
// file again. It refuses to if that would allow a rule to be broken more often in total.
func TestDebtOnlyFalls(t *testing.T) {
	allowed, now := readDebt(t), measureDebt(t)
	if *rewrite {
		rewriteDebt(t, allowed, now)
		return
	}
	for _, d := range slices.SortedFunc(maps.Keys(now), compareDebt) {
		if now[d] > allowed[d] {
			t.Errorf("%s: %s is %d, and %d is allowed: mend what is new (after a move between folders: -rewrite)", d.folder,
				d.rule, now[d], allowed[d])
		}
	}
}

func rewriteDebt(t *testing.T, allowed, now map[debt]int) {
	t.Helper()
	more := totals(now)
	for rule, n := range totals(allowed) {
		more[rule] -= n
	}
	for rule, n := range more {
		if n > 0 {
			t.Errorf("%s: %d more than the file allows in total", rule, n)
		}
	}
	if t.Failed() {
		return
	}
	var out strings.Builder
	out.WriteString("# How often a folder breaks a rule that the whole tree does not keep yet. Numbers may only fall.\n")
	for _, d := range slices.SortedFunc(maps.Keys(now), compareDebt) {
		fmt.Fprintf(&out, "%s %s %d\n", d.rule, d.folder, now[d])
	}
	if err := os.WriteFile(ratchetFile, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func compareDebt(a, b debt) int {
	return cmp.Or(cmp.Compare(a.rule, b.rule), cmp.Compare(a.folder, b.folder))
}

func totals(debts map[debt]int) map[string]int {
	out := map[string]int{}
	for d, n := range debts {
		out[d.rule] += n
	}
	return out
}

func readDebt(t *testing.T) map[debt]int {
	t.Helper()
	text, err := os.ReadFile(ratchetFile)
	if err != nil {
		t.Fatal(err)
	}
	out := map[debt]int{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var d debt
		var n int
		if _, err := fmt.Sscanf(line, "%s %s %d\n", &d.rule, &d.folder, &n); err != nil {
			t.Fatalf("%s: %q: %v", ratchetFile, line, err)
		}
		out[d] = n
	}
	return out
}

// measureDebt counts what the production code of each package breaks.
func measureDebt(t *testing.T) map[debt]int {
	t.Helper()
	out := map[debt]int{}
	var large []pkg
	for _, p := range packages(t) {
		generated := func(name string) bool { return strings.HasPrefix(name, "zz_generated") }
		written := slices.DeleteFunc(slices.Clone(p.GoFiles), generated)
		if n := len(written); n > maxPackageFiles {
			out[debt{manyFiles, p.path()}] = n
		}
		if len(written) > maxFileCycle {
			large = append(large, p)
		}
		lines := 0
		for _, name := range written {
			source, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(source, []byte("\n"))
			for rule, n := range sourceDebt(t, name, source) {
				if n > 0 {
					out[debt{rule, p.path()}] += n
				}
			}
		}
		if lines > maxPackageLines {
			out[debt{manyLines, p.path()}] = (lines + 99) / 100
		}
	}
	for path, n := range fileCycles(t, large) {
		if n > maxFileCycle {
			out[debt{fileCycle, path}] = n
		}
	}
	return out
}

// sourceDebt counts what one file breaks.
func sourceDebt(t *testing.T, name string, source []byte) map[string]int {
	t.Helper()
	out := map[string]int{}
	for line := range strings.Lines(string(source)) {
		if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > maxColumns {
			out[longLine]++
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Comments {
		out[bannedWord] += len(banned.FindAllString(group.Text(), -1))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.IfStmt); ok && acts(s.Init) {
			out[actInHead]++
		}
		return true
	})
	return out
}

// acts reports whether the first part of an if's head does more than give names to values.
func acts(init ast.Stmt) bool {
	switch init := init.(type) {
	case nil:
		return false
	case *ast.AssignStmt:
		return slices.ContainsFunc(init.Lhs, func(to ast.Expr) bool {
			_, name := to.(*ast.Ident)
			return !name
		})
	default:
		return true
	}
}

func TestDebtOfASourceIsCounted(t *testing.T) {
	for body, want := range map[string]map[string]int{
		"if err := f(); err != nil {}\nif err = f(); err != nil {}": {},
		"if f(); ok {}\nif n++; n > 1 {}\nif c <- 1; ok {}":         {actInHead: 3},
		"if a.b = f(); a.b == nil {}\nif m[k] = v; ok {}":           {actInHead: 2},
		"// It is read anew.\n_ = \"anew\"":                         {bannedWord: 1},
		"// ok tells\n// whether it is. Whose turn is it?":          {bannedWord: 2},
		"_ = \"" + strings.Repeat("é", maxColumns-6) + "\"":         {},
		"_ = \"" + strings.Repeat("é", maxColumns-5) + "\"":         {longLine: 1},
	} {
		got := sourceDebt(t, "x.go", []byte("package p\n\nfunc g() {\n"+body+"\n}\n"))
		maps.DeleteFunc(got, func(_ string, n int) bool { return n == 0 })
		if !maps.Equal(got, want) {
			t.Errorf("%s\nbreaks %v, want %v", body, got, want)
		}
	}
}
