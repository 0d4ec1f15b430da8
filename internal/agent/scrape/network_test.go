package scrape

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/cri"
)

// Who may change a pod's network names its interfaces as the kernel allows, which is almost anything. Nobody else's numbers are lost
// over it.
func TestInterfacesOfOddNames(t *testing.T) {
	proc := t.TempDir()
	for folder, name := range map[string]string{"net": "eth0", "1/net": "\xff\xfe", "2/net": "\u3000", "3/net": "eth0"} {
		dir := filepath.Join(proc, folder)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		text := "Inter-|   Receive\n face |bytes\n " + name + ": 42" + strings.Repeat(" 0", 15) + "\n"
		if err := os.WriteFile(filepath.Join(dir, "dev"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := New(Config{
		Proc:      proc,
		Measure:   func(string) (*cgroups.Usage, error) { return nil, nil },
		Processes: func(group string) ([]int, error) { pid, err := strconv.Atoi(group); return []int{pid}, err },
		Groups: func(context.Context) (out []cri.Group, err error) {
			for _, id := range []string{"1", "2", "3"} {
				out = append(out, cri.Group{Pod: "pod-" + id, Cgroup: id, PodCgroup: id})
			}
			return out, nil
		},
		Layers:  func(context.Context) (map[string]int64, error) { return nil, nil },
		Machine: func() (Machine, error) { return Machine{}, nil },
	})
	w := httptest.NewRecorder()
	p.Handlers()["/metrics/cadvisor"].ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	page := w.Body.String()
	if !utf8.ValidString(page) {
		t.Error("the page is no UTF-8, and nobody takes it")
	}
	for _, want := range []string{
		`interface="\uFFFD",name="",namespace="",pod="pod-1"} 42`, `interface="eth0",name="",namespace="",pod="pod-3"} 42`, "container_scrape_error 1\n",
	} {
		if !strings.Contains(page, strings.ReplaceAll(want, `\uFFFD`, "\uFFFD")) {
			t.Errorf("there is no %s in\n%s", want, page)
		}
	}
}
