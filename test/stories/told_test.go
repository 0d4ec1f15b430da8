package stories

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	within "github.com/everynode/everynode/internal/testenv/eventually"
	"github.com/everynode/everynode/internal/testenv/freeport"
	"github.com/everynode/everynode/internal/testenv/needs"
	"github.com/everynode/everynode/internal/testenv/secrecy"
)

// hidden are values like nothing else, with which what Secrets hold begins.
var hidden = []string{"quux-frobnicate-90125", "xyzzy-plugh-471100"}

// told is a cluster whose processes log, record and audit as much as they can, into files.
type told struct {
	t                   *testing.T
	binary, dir, config string
	client              kubernetes.Interface
	// metrics are URLs of metrics beside the server's.
	metrics []string
	// files are what the processes write.
	files []string
	// page reads from the dashboard, once it has been started.
	page func(method, path, body string) []byte
	// live tells that running pods are given content.
	live bool
	// ends has each process end.
	ends []func()
}

// mostVerbose is how much processes log at most.
const mostVerbose = "5"

// startTold starts a server with the audit policy, and with apart the DaemonSet controller in a process of its own.
func startTold(t *testing.T, audit string, apart bool) *told {
	c := &told{t: t, binary: needs.Everynode(t, "../.."), dir: t.TempDir()}
	t.Cleanup(c.stop)
	policy := c.write("audit.yaml", audit)
	faults := c.write("faults.yaml", badContent)
	data, log, decisions := c.file("data"), c.file("audit.log"), c.file("decisions")
	c.files = []string{log, decisions}
	args := []string{
		"server", "--data-dir", data, "--listen", "127.0.0.1:0", "--simulated-nodes", "3", "--faults", faults,
		"--audit-policy-file", policy, "--audit-log-path", log,
	}
	if apart {
		c.begin("server.log", append(args, "--daemonset-controller=false")...)
	} else {
		c.begin("server.log", append(args, "--record-decisions", decisions)...)
	}
	c.config = filepath.Join(data, "kubeconfig")
	c.eventually("the nodes are there", func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", c.config)
		if err != nil {
			return err
		}
		c.client, err = kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && len(nodes.Items) < 3 {
			err = fmt.Errorf("%d are", len(nodes.Items))
		}
		return err
	})
	if apart {
		port, err := freeport.Take()
		if err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("127.0.0.1:%d", port)
		c.metrics = []string{"http://" + at + "/metrics"}
		c.begin("controller.log", "controller", "--kubeconfig", c.config, "--leader-elect=false", "--listen", at,
			"--record-decisions", decisions)
	}
	return c
}

func (c *told) file(name string) string { return filepath.Join(c.dir, name) }

// begin starts a process that logs into a file.
func (c *told) begin(log string, args ...string) {
	c.t.Helper()
	path := c.file(log)
	out, err := os.Create(path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(c.binary, append(args, "-v", mostVerbose)...)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	if err != nil {
		c.t.Fatal(err)
	}
	c.files = append(c.files, path)
	c.ends = append(c.ends, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		err := cmd.Wait()
		if err != nil {
			said, _ := os.ReadFile(path)
			c.t.Errorf("everynode %s ended with: %v\n%s", args[0], err, said[max(0, len(said)-2000):])
		}
	})
}

// stop ends the processes, the last one first.
func (c *told) stop() {
	for _, end := range slices.Backward(c.ends) {
		end()
	}
	c.ends = nil
}

func (c *told) eventually(what string, check func(context.Context) error) {
	c.t.Helper()
	within.Nil(c.t, patience, what, check)
}

func (c *told) write(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// run runs everynode, and returns all that it says.
func (c *told) run(args ...string) []byte {
	c.t.Helper()
	if args[0] != "kubectl" {
		args = append(args, "-v", mostVerbose)
	}
	cmd := exec.Command(c.binary, args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "KUBECONFIG="+c.config, "HOME="+c.dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := runWithin(cmd)
	// With changes that a plan finds, and problems that the doctor finds, they end so.
	found := map[string]int{"plan": 2, "doctor": 1}[args[0]]
	if err != nil && (found == 0 || cmd.ProcessState.ExitCode() != found) {
		c.t.Fatalf("everynode %s: %v\n%s", strings.Join(args, " "), err, &out)
	}
	return out.Bytes()
}

// startPage starts the dashboard, and returns what reads from it.
func (c *told) startPage() (read func(method, path, body string) []byte) {
	c.t.Helper()
	cmd := exec.Command(c.binary, "dashboard", "--port", "0", "--no-browser")
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "KUBECONFIG="+c.config, "HOME="+c.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	address := regexp.MustCompile(`(http://127\.0\.0\.1:\d+)/#key=(\S+)`)
	var found []string
	for lines := bufio.NewScanner(out); found == nil && lines.Scan(); {
		found = address.FindStringSubmatch(lines.Text())
	}
	if found == nil {
		c.t.Fatal("the dashboard prints no address")
	}
	return func(method, path, body string) []byte {
		c.t.Helper()
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, found[1]+path, strings.NewReader(body))
		if err != nil {
			c.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+found[2])
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			c.t.Fatal(err)
		}
		defer answer.Body.Close()
		var raw []byte
		if answer.Header.Get("Content-Type") == "application/x-ndjson" {
			// It never ends. The first line of events holds all that there are; of the page's stream the second does.
			lines := bufio.NewReader(answer.Body)
			for n := 1 + strings.Count(path, "stream"); n > 0 || lines.Buffered() > 0; n-- {
				line, err := lines.ReadBytes('\n')
				if err != nil {
					c.t.Fatalf("%s: after %q: %v", path, raw, err)
				}
				raw = append(raw, line...)
			}
		} else if raw, err = io.ReadAll(answer.Body); err != nil {
			c.t.Fatalf("%s: %v", path, err)
		}
		if answer.StatusCode >= http.StatusMultipleChoices {
			c.t.Fatalf("%s %s: %s\n%s", method, path, answer.Status, raw)
		}
		return raw
	}
}

// hides fails the test if a text holds a hidden value, as it is or encoded.
func hides(t *testing.T, where string, raw []byte) {
	t.Helper()
	secrecy.Hides(t, where, raw, hidden...)
}
