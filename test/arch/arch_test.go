// Package arch checks the rules by which the code is laid out. They are written
// down, with their reasons, in ARCHITECTURE.md.
package arch

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/everynode/everynode/"

type pkg struct {
	ImportPath, Dir, Name, Doc string
	GoFiles, Imports           []string
	TestImports, XTestImports  []string
}

// path is the package's path inside the module.
func (p pkg) path() string { return strings.TrimPrefix(p.ImportPath, module) }

func packages(t *testing.T) (out []pkg) {
	t.Helper()
	const fields = "-json=ImportPath,Dir,Name,Doc,GoFiles,Imports,TestImports,XTestImports"
	cmd := exec.Command("go", "list", fields, module+"...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the packages: %v: %s", err, &stderr)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	for decoder.More() {
		var p pkg
		if err := decoder.Decode(&p); err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	if len(out) < 20 {
		t.Fatalf("found only %d packages", len(out))
	}
	return out
}

// under says whether a package is the folder or below it.
func under(path string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return path == f || strings.HasPrefix(path, f+"/") })
}

// driver names the driver that a package belongs to, or nothing. Drivers meet
// through the API only.
func driver(path string) string {
	for _, d := range []string{"internal/scheduler", "internal/simulator", "internal/apiserver", "internal/storage/etcd",
		"internal/network/proxy", "internal/network/dns", "internal/agent"} {
		if under(path, d) {
			return d
		}
	}
	if rest, ok := strings.CutPrefix(path, "internal/controller/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		return "internal/controller/" + name
	}
	return ""
}

// sharedByDrivers are parts of a driver that are facts or pure decisions which
// another driver needs as well.
var sharedByDrivers = map[string][]string{
	// The simulated nodes run the agent's own state machine, and have room by the agent's rules.
	"internal/simulator": {"internal/agent/podworker", "internal/agent/podadmission"},
	// Whether a node waits for a daemon goes by the same rules as whether it gets one.
	"internal/controller/nodestartup": {"internal/controller/daemonset/placement"},
	// A node gives the pods in its own folder the API's defaults, and checks them by its rules. Its composition root
	// starts the name server and the service proxy.
	"internal/agent": {"internal/apiserver/podspec", "internal/network/dns", "internal/network/proxy"},
}

func TestDriversMeetOnlyThroughTheAPI(t *testing.T) {
	for _, p := range packages(t) {
		from := driver(p.path())
		if from == "" {
			continue
		}
		for _, i := range p.Imports {
			to := strings.TrimPrefix(i, module)
			if d := driver(to); d != "" && d != from && !under(to, sharedByDrivers[from]...) {
				t.Errorf("%s imports %s: one driver must not import another", p.path(), to)
			}
		}
	}
}

func TestRootsAreImportedByCommandsOnly(t *testing.T) {
	for _, p := range packages(t) {
		for _, i := range p.Imports {
			switch to := strings.TrimPrefix(i, module); {
			case to == "internal/cli" && p.path() != "cmd/everynode":
				t.Errorf("%s imports the command line", p.path())
			case to == "internal/agent" && p.path() == "test/scale": // It runs many agents without machines.
			case (to == "internal/server" || to == "internal/agent" || to == "internal/local") &&
				!under(p.path(), "internal/cli", "internal/testenv"):
				t.Errorf("%s imports the composition root %s", p.path(), to)
			case to == "internal/testenv":
				t.Errorf("%s imports internal/testenv, which is for tests", p.path())
			}
		}
	}
}

// pure lists the packages that only decide.
func pure(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return slices.Contains([]string{
		"podadmission", "matrix", "belongings", "history", "course", "admit", "rollouts", "rolloutpolicy", "plan",
		"podworker", "graph", "health", "fit", "score", "queue", "placement", "changes", "ruleset",
		"survey", "why", "news", "standing", "fetching", "row", "eviction", "illness", "imagegc", "journal", "ledger",
		"deadline", "zone", "userns", "turns", "timeline", "diagnosis", "volume", "servicenetwork",
		"space", "hashcheck", "share", "roster", "content", "contents", "startups", "variant", "variants", "resizing",
		"way", "reservations", "pins", "pinning", "approval", "gates", "joining", "renewal",
		"fitness", "fetchpod", "fetches",
	}, name)
}

// impure is what a pure package must not know.
var impure = []string{
	"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "k8s.io/apiserver", "k8s.io/cri-client", "k8s.io/cri-api",
	"os", "net", "net/http", "sync", "sync/atomic", "log", "math/rand", "math/rand/v2", "context",
	"k8s.io/utils/clock", "github.com/prometheus",
}

func TestPureCoresKnowNothingOfTheWorld(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		if !pure(p.path()) {
			continue
		}
		found++
		for _, i := range p.Imports {
			below := func(x string) bool { return strings.Contains(x, ".") && strings.HasPrefix(i, x+"/") }
			if slices.Contains(impure, i) || slices.ContainsFunc(impure, below) {
				t.Errorf("%s imports %s: a pure core has no clock, chance, lock, log or client", p.path(), i)
			}
		}
		for _, file := range p.GoFiles {
			checkPureFile(t, p, filepath.Join(p.Dir, file))
		}
	}
	if found < 5 {
		t.Errorf("found only %d pure cores; does pure() still know their names?", found)
	}
}

// checkPureFile finds goroutines, logs and calls of the machine's clock. The null
// logger klog.Logger{}, which an API function asks for, is no log.
func checkPureFile(t *testing.T, p pkg, path string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			t.Errorf("%s: %s starts a goroutine", p.path(), files.Position(n.Pos()))
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok {
				x, ok := s.X.(*ast.Ident)
				if ok && x.Name == "klog" {
					t.Errorf("%s: %s logs", p.path(), files.Position(n.Pos()))
				}
				clock := []string{"Now", "Since", "Until", "After", "Sleep"}
				if ok && (x.Name == "time" || x.Name == "metav1") && slices.Contains(clock, s.Sel.Name) {
					t.Errorf("%s: %s reads the clock", p.path(), files.Position(n.Pos()))
				}
			}
		}
		return true
	})
}

// homes says which folders may import what is costly, or touches the system.
var homes = map[string][]string{
	"go.etcd.io/etcd":                  {"internal/storage/etcd"},
	"github.com/spf13/cobra":           {"internal/cli"},
	"filippo.io/age":                   {"internal/storage/backup"},
	"github.com/minio/minio-go":        {"internal/storage/backup/store"},
	"github.com/robfig/cron":           {"internal/objects/cronschedule"},
	"k8s.io/cri-client":                {"internal/agent/cri", "internal/agent/images", "internal/agent/streaming"},
	"k8s.io/cri-api":                   {"internal/agent"},
	"github.com/containerd/containerd": {"internal/images"},
	"github.com/vishvananda/netlink": {"internal/agent/network", "internal/local", "internal/network/packetfilter",
		"internal/network/proxy/nftables"},
	"sigs.k8s.io/knftables":             {"internal/network/proxy/nftables"},
	"github.com/opencontainers/cgroups": {"internal/agent/cgroups", "internal/agent/scrape"},
}

func TestOutsideWorldHasOneDoor(t *testing.T) {
	for _, p := range packages(t) {
		for _, i := range p.Imports {
			if strings.HasPrefix(i, "k8s.io/kubernetes") {
				t.Errorf("%s imports %s, which is not published as a library", p.path(), i)
			}
			for library, folders := range homes {
				if strings.HasPrefix(i, library) && !under(p.path(), folders...) {
					t.Errorf("%s imports %s; only %v may", p.path(), i, folders)
				}
			}
		}
	}
}

// The library's comparison notes down each struct that it has seen, at tens of times the cost of alike's. A client may
// have the server compare 3 MB of them.
func TestObjectsAreComparedAtLittleCost(t *testing.T) {
	const folder, dear = "../../internal/apiserver/registry", "k8s.io/apimachinery/pkg/api/equality"
	seen := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		seen++
		source, err := os.ReadFile(path)
		if bytes.Contains(source, []byte(dear)) || bytes.Contains(source, []byte("ValidateImmutableField(")) {
			t.Errorf("%s compares with the library; alike.Values and alike.Unchanged do the same", path)
		}
		return err
	})
	if err != nil || seen < 100 {
		t.Fatalf("looked at %d files: %v", seen, err)
	}
}

// The DaemonSet controller writes to an API in one file only.
func TestDaemonSetControllerCallsTheAPIInOneFile(t *testing.T) {
	const folder, door = "../../internal/controller/daemonset", "executor/writer.go"
	clients := []string{"k8s.io/client-go/kubernetes", module + "api/client", module + "internal/loop/podwriter"}
	var sources []string
	for _, of := range []string{"/*.go", "/executor/*.go"} {
		files, err := filepath.Glob(folder + of)
		if err != nil || len(files) < 5 {
			t.Fatalf("sources: %v, %v", files, err)
		}
		sources = append(sources, files...)
	}
	for _, path := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		calls := slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
			return slices.Contains(clients, strings.Trim(i.Path.Value, `"`))
		})
		isDoor := path == filepath.Join(folder, door)
		if !strings.HasSuffix(path, "_test.go") && calls != isDoor {
			t.Errorf("%s imports an API client: %v; only %s does", path, calls, door)
		}
	}
}

func TestPackagesAreDocumentedAndNamedForWhatTheyAre(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 && !strings.HasSuffix(p.path(), "openapi") {
			t.Errorf("%s has no package comment", p.path())
		}
		for _, word := range []string{"util", "utils", "common", "helper", "helpers", "misc"} {
			if slices.Contains(strings.Split(p.path(), "/"), word) {
				t.Errorf("%s: a folder is a concept, and %q is none", p.path(), word)
			}
		}
	}
}

// Limits of size; a file or a function that reaches one has more than one duty.
const (
	maxFileLines     = 500
	maxFunctionLines = 80
)

// maxRooms is how many folders a stranger looks through to find where to begin.
const maxRooms = 25

func TestFewFoldersStandDirectlyUnderInternal(t *testing.T) {
	entries, err := os.ReadDir("../../internal")
	if err != nil {
		t.Fatal(err)
	}
	folders := 0
	for _, e := range entries {
		if e.IsDir() {
			folders++
		}
	}
	if folders > maxRooms {
		t.Errorf("%d folders stand directly under internal, and %d may: put the new one into a wing", folders, maxRooms)
	}
}

func TestFilesAndFunctionsAreSmall(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && entry.Name() == ".git" {
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.Contains(path, "zz_generated") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := bytes.Count(source, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines, more than %d", path, n, maxFileLines)
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, source, 0)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				if n := files.Position(f.End()).Line - files.Position(f.Pos()).Line + 1; n > maxFunctionLines {
					t.Errorf("%s: %s has %d lines, more than %d", path, f.Name.Name, n, maxFunctionLines)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
