package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const contractFile = "../../docs/contract.md"

var (
	contractRow  = regexp.MustCompile(`^\| ([A-Z])(\d+) \|.*\| ([^|]+) \|$`)
	goProof      = regexp.MustCompile(`^(\S+) (Test\w+)(?:: (.+))?$`)
	scriptProof  = regexp.MustCompile(`^(\S+\.txt): (.+)$`)
	differProof  = regexp.MustCompile(`^\[differences\]\(differences\.md#(\w+)\): (.+)$`)
	proofsOfCell = regexp.MustCompile("`[^`]+`|\\[differences\\]\\([^)]*\\): (?:[^,`]|`[^`]*`|, with)+")
)

// TestContractIsProven checks that each row of the contract names tests that exist.
func TestContractIsProven(t *testing.T) {
	text, err := os.ReadFile(contractFile)
	if err != nil {
		t.Fatal(err)
	}
	check := proofs{tests: map[string]map[string]map[string]bool{}}
	rows, next := 0, map[string]int{}
	for _, line := range strings.Split(string(text), "\n") {
		m := contractRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		rows++
		next[m[1]]++
		id := m[1] + m[2]
		if m[2] != strconv.Itoa(next[m[1]]) {
			t.Errorf("%s comes where %s%d is expected", id, m[1], next[m[1]])
		}
		cited := proofsOfCell.FindAllString(m[3], -1)
		if len(cited) == 0 {
			t.Errorf("%s has no proof", id)
		}
		if rest := strings.Trim(proofsOfCell.ReplaceAllString(m[3], ""), ", "); rest != "" {
			t.Errorf("%s: %q is no proof", id, rest)
		}
		for _, p := range cited {
			if err := check.exists(p); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
	}
	if rows < 50 {
		t.Errorf("found only %d rows; does the test still know how they look?", rows)
	}
	for name := range check.of("test/conformance") {
		if !strings.Contains(string(text), "test/conformance "+name) {
			t.Errorf("%s of test/conformance proves nothing in the contract", name)
		}
	}
}

// TestSafeChangeIsShown checks that what is promised about changes names tests that exist.
func TestSafeChangeIsShown(t *testing.T) {
	text, err := os.ReadFile("../../docs/safe-change.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| promise | shown by |\n|---|---|\n")
	if !found {
		t.Fatal("docs/safe-change.md has no table of promises")
	}
	check := proofs{tests: map[string]map[string]map[string]bool{}}
	rows := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) != 2 {
			break
		}
		rows++
		cited := proofsOfCell.FindAllString(cells[1], -1)
		if len(cited) == 0 {
			t.Errorf("nothing shows that%s", cells[0])
		}
		for _, p := range cited {
			if err := check.exists(p); err != nil && !strings.HasPrefix(p, "`make ") {
				t.Errorf("%s: %v", cells[0], err)
			}
		}
	}
	if rows < 5 {
		t.Errorf("found only %d rows; does the test still know how they look?", rows)
	}
}

// TestSecurityIsProven checks that what is said about attackers names tests that exist.
func TestSecurityIsProven(t *testing.T) {
	text, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	check := proofs{tests: map[string]map[string]map[string]bool{}}
	rows, hardening := 0, false
	for line := range strings.Lines(string(text)) {
		hardening = hardening || strings.HasPrefix(line, "## Hardening")
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		row := strings.HasPrefix(line, "|") && len(cells) == 4
		if !row || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[3]) == "proof" {
			continue
		}
		rows++
		cited := proofsOfCell.FindAllString(cells[3], -1)
		// What nobody promises needs no proof, nor that there is no such thing as could be set.
		promised := !hardening || strings.HasPrefix(strings.TrimSpace(cells[1]), "met by default")
		if promised && len(cited) == 0 {
			t.Errorf("nothing proves what is said of %s:%s", cells[0], cells[1])
		}
		for _, p := range cited {
			if err := check.exists(p); err != nil {
				t.Errorf("%s:%s: %v", cells[0], cells[1], err)
			}
		}
	}
	if rows < 10 {
		t.Errorf("found only %d rows; does the test still know how they look?", rows)
	}
}

// proofs knows what tests there are: folder, test, and the texts in it, among
// which are the names of its cases.
type proofs struct {
	tests map[string]map[string]map[string]bool
}

func (p proofs) exists(cited string) error {
	if m := differProof.FindStringSubmatch(cited); m != nil {
		return differenceExists(m[1], m[2])
	}
	cited = strings.Trim(cited, "`")
	if m := scriptProof.FindStringSubmatch(cited); m != nil {
		return commentExists(m[1], m[2])
	}
	m := goProof.FindStringSubmatch(cited)
	if m == nil {
		return fmt.Errorf("%q names no test", cited)
	}
	texts, ok := p.of(m[1])[m[2]]
	if !ok {
		return fmt.Errorf("%s has no test %s", m[1], m[2])
	}
	if m[3] != "" && !texts[m[3]] {
		return fmt.Errorf("%s of %s has no case %q", m[2], m[1], m[3])
	}
	return nil
}

// of returns the tests of a folder.
func (p proofs) of(folder string) map[string]map[string]bool {
	if known, ok := p.tests[folder]; ok {
		return known
	}
	found := map[string]map[string]bool{}
	p.tests[folder] = found
	files, _ := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	tables := map[string]ast.Node{}
	var tests []*ast.FuncDecl
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			continue // another test says that it does not compile
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && strings.HasPrefix(d.Name.Name, "Test") {
					tests = append(tests, d)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && d.Tok == token.VAR {
						tables[v.Names[0].Name] = v
					}
				}
			}
		}
	}
	for _, f := range tests {
		found[f.Name.Name] = textsIn(f, tables)
	}
	return found
}

// textsIn returns the texts in a test, and in the tables that it uses.
func textsIn(f *ast.FuncDecl, tables map[string]ast.Node) map[string]bool {
	out := map[string]bool{}
	collect := func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				out[text] = true
			}
		}
		return true
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if name, ok := n.(*ast.Ident); ok && tables[name.Name] != nil {
			ast.Inspect(tables[name.Name], collect)
		}
		return collect(n)
	})
	return out
}

// commentExists looks for the words in the comments of a script, whose lines
// may break anywhere.
func commentExists(path, words string) error {
	text, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		return err
	}
	var comments strings.Builder
	for _, line := range strings.Split(string(text), "\n") {
		if comment, ok := strings.CutPrefix(line, "# "); ok {
			comments.WriteString(comment + " ")
		} else {
			comments.WriteString("\n")
		}
	}
	if !strings.Contains(comments.String(), words) {
		return fmt.Errorf("no comment of %s says %q", path, words)
	}
	return nil
}

// differenceExists looks for a row that begins with the words, in a section.
func differenceExists(section, words string) error {
	text, err := os.ReadFile("../../docs/differences.md")
	if err != nil {
		return err
	}
	in := ""
	for _, line := range strings.Split(string(text), "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			in = strings.ReplaceAll(strings.ToLower(title), " ", "-")
		}
		if in == section && strings.HasPrefix(line, "| "+words+" |") {
			return nil
		}
	}
	return fmt.Errorf("differences.md has no row %q under %s", words, section)
}
