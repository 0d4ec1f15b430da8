package staticpods

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// watched is a Folder that a test looks through by hand, and what it told.
type watched struct {
	*Folder
	t        *testing.T
	dir      string
	told     [][]string
	problems []string
}

func watch(t *testing.T) *watched {
	w := &watched{t: t, dir: filepath.Join(t.TempDir(), "manifests")}
	w.Folder = NewFolder(Config{Path: w.dir, NodeName: "n1",
		OnPods: func(pods []*corev1.Pod) {
			names := []string{}
			for _, pod := range pods {
				names = append(names, pod.Name+" "+pod.Spec.Containers[0].Image)
			}
			w.told = append(w.told, names)
		},
		OnProblem: func(path string, err error) {
			w.problems = append(w.problems, filepath.Base(path)+": "+err.Error())
		}})
	return w
}

func (w *watched) write(name, text string) {
	w.t.Helper()
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *watched) remove(name string) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

// lookTwice is what it takes to see a change.
func (w *watched) lookTwice() {
	w.look()
	w.look()
}

// expect checks what was told since the last time.
func (w *watched) expect(told ...[]string) {
	w.t.Helper()
	if !slices.EqualFunc(w.told, told, slices.Equal) {
		w.t.Errorf("told of %q, want %q", w.told, told)
	}
	w.told = nil
}

func (w *watched) expectProblem(texts ...string) {
	w.t.Helper()
	if len(w.problems) != len(texts) {
		w.t.Fatalf("problems %q, want %q", w.problems, texts)
	}
	for i, text := range texts {
		if !strings.Contains(w.problems[i], text) {
			w.t.Errorf("problem %q, want one with %q", w.problems[i], text)
		}
	}
	w.problems = nil
}

func manifest(name, image string) string {
	return strings.NewReplacer("name: web,", "name: "+name+",", "example.com/web:v1", image).Replace(plain)
}

func TestFilesComeChangeAndGo(t *testing.T) {
	w := watch(t)
	w.look()
	w.expect([]string{}) // a folder that is not there is told of as empty, once
	w.look()
	w.expect()
	w.write("a.yaml", manifest("a", "i:1"))
	w.write(".hidden.yaml", manifest("hidden", "i:1"))
	w.look()
	w.expect() // it may still be written
	w.look()
	w.expect([]string{"a-n1 i:1"})
	w.write("b.json", manifest("b", "i:1"))
	w.write("a.yaml", manifest("a", "i:22"))
	w.lookTwice()
	w.expect([]string{"a-n1 i:22", "b-n1 i:1"})
	w.remove("a.yaml")
	w.look()
	w.expect([]string{"b-n1 i:1"})
	w.expectProblem()
}

func TestFirstLookReadsAtOnce(t *testing.T) {
	w := watch(t)
	w.write("a.yaml", manifest("a", "i:1"))
	w.look()
	w.expect([]string{"a-n1 i:1"})
}

func TestBadFileHurtsNothingElse(t *testing.T) {
	w := watch(t)
	w.write("a.yaml", manifest("a", "i:1"))
	w.write("b.yaml", "nonsense")
	w.look()
	w.expect([]string{"a-n1 i:1"})
	w.expectProblem("b.yaml: not YAML or JSON")
	w.lookTwice()
	w.expectProblem() // told once
	w.write("a.yaml", "worse nonsense")
	w.lookTwice()
	w.expect() // the pod runs on
	w.expectProblem("a.yaml: not YAML or JSON")
	w.write("a.yaml", manifest("a", "i:333"))
	w.write("b.yaml", manifest("b", "i:1"))
	w.lookTwice()
	w.expect([]string{"a-n1 i:333", "b-n1 i:1"})
}

func TestOneNameInTwoFiles(t *testing.T) {
	w := watch(t)
	w.write("a.yaml", manifest("a", "i:1"))
	w.write("b.yaml", manifest("a", "i:2"))
	w.lookTwice()
	w.expect([]string{"a-n1 i:1"})
	w.expectProblem("b.yaml: pod default/a-n1 is also in " + w.dir + "/a.yaml")
	w.remove("a.yaml")
	w.look()
	w.expect([]string{"a-n1 i:2"})
}

func TestUnreadableFolderStopsNothing(t *testing.T) {
	w := watch(t)
	w.write("a.yaml", manifest("a", "i:1"))
	w.look()
	w.expect([]string{"a-n1 i:1"})
	// A path that leads through a file is an error other than that there is nothing.
	w.cfg.Path = filepath.Join(w.dir, "a.yaml", "x")
	w.lookTwice()
	w.expect()
	w.expectProblem("x: look at static pods: ")
}

func TestPathOfOneFile(t *testing.T) {
	w := watch(t)
	w.write("a.yaml", manifest("a", "i:1"))
	w.write("b.yaml", manifest("b", "i:1"))
	w.cfg.Path = filepath.Join(w.dir, "b.yaml")
	w.look()
	w.expect([]string{"b-n1 i:1"})
}
