package stories

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// localCluster is a cluster of real nodes that a test starts, hurts and stops.
type localCluster struct {
	t                 *testing.T
	binary, dir, port string
}

func newLocal(t *testing.T) *localCluster {
	t.Helper()
	needs.Root(t, "real nodes need root")
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	c := &localCluster{t: t, binary: needs.Everynode(t, "../.."), dir: filepath.Join(t.TempDir(), "cluster"), port: port}
	t.Cleanup(func() {
		if out, err := c.command("down", "--purge").CombinedOutput(); err != nil {
			t.Errorf("down --purge: %v\n%s", err, out)
		}
		c.gone()
		if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
			t.Errorf("the data dir is still there: %v", err)
		}
	})
	return c
}

func (c *localCluster) command(args ...string) *exec.Cmd {
	if args[0] == "up" {
		args = append(args, "--api-port", c.port, "--runtime", "containerd", "--nodes", "2")
	}
	cmd := exec.Command(c.binary, append([]string{args[0], "--data-dir", c.dir}, args[1:]...)...)
	return cmd
}

// do runs a command that must work and returns what it printed.
func (c *localCluster) do(args ...string) string {
	c.t.Helper()
	var out, complaint bytes.Buffer
	cmd := c.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := runWithin(cmd); err != nil {
		c.t.Fatalf("everynode %s: %v\n%s%s", strings.Join(args, " "), err, &out, &complaint)
	}
	return out.String()
}

// id is what the names of everything that a cluster makes have in them.
func (c *localCluster) id() string {
	sum := sha256.Sum256([]byte(c.dir))
	return hex.EncodeToString(sum[:4])
}

// gone fails the test if anything of the cluster is on the machine except files
// in its data dir.
func (c *localCluster) gone() {
	c.t.Helper()
	var found []string
	note := func(kind, name string) { found = append(found, kind+" "+name) }
	for _, pattern := range []string{"/run/netns/*", "/sys/class/net/*", "/sys/fs/cgroup/everynode/*", "/sys/fs/cgroup/*/everynode/*", "/run/*", "/run/everynode/*", "/var/lib/cni/*", "/tmp/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, p := range paths {
			if strings.Contains(filepath.Base(p), c.id()) {
				note("path", p)
			}
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil {
		c.t.Error(err)
	} else {
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, c.id()) || strings.Contains(line, c.dir) {
				note("mount", line)
			}
		}
	}
	if tables, err := exec.Command("nft", "list", "tables").Output(); err != nil {
		c.t.Errorf("nft list tables: %v", err)
	} else if strings.Contains(string(tables), c.id()) {
		note("nftables table of", c.id())
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		environment, _ := os.ReadFile(p + "/environ")
		words, _ := os.ReadFile(p + "/cmdline")
		if bytes.Contains(environment, []byte("EVERYNODE_CLUSTER="+c.id())) || bytes.Contains(words, []byte(c.dir)) || bytes.Contains(words, []byte("/everynode/"+c.id())) {
			note("process "+filepath.Base(p), strings.ReplaceAll(string(words), "\x00", " "))
		}
	}
	if len(found) > 0 {
		c.t.Errorf("left of cluster %s:\n%s", c.id(), strings.Join(found, "\n"))
	}
}

// state reads one process number of the cluster's state file.
func (c *localCluster) state() (s struct {
	Supervisor, Server struct{ PID int }
	Nodes              map[string]struct{ Init, Containerd, Agent struct{ PID int } }
}) {
	c.t.Helper()
	raw, err := os.ReadFile(filepath.Join(c.dir, "local.json"))
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// soon waits until something holds.
func (c *localCluster) soon(what string, holds func() bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for !holds() {
		if ctx.Err() != nil {
			c.t.Fatalf("never: %s", what)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// daemon runs a daemon with a host port on every node, and returns which
// containers it has.
func (c *localCluster) daemon() string {
	c.t.Helper()
	example, err := filepath.Abs("../../examples/metrics-agent.yaml")
	if err != nil {
		c.t.Fatal(err)
	}
	c.do("kubectl", "apply", "-f", example)
	c.do("kubectl", "rollout", "status", "ds/metrics-agent")
	return c.containers()
}

// containers lists the daemon's containers with how often each was restarted.
func (c *localCluster) containers() string {
	c.t.Helper()
	return c.do("kubectl", "get", "pods", "-l", "app=metrics-agent", "--sort-by=.spec.nodeName", "-o",
		`jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name} {.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}{"\n"}{end}`)
}

// after is when, after its start, a command is hurt: an input, chosen so that
// different things are half made.
var after = []time.Duration{10 * time.Millisecond, 120 * time.Millisecond, 400 * time.Millisecond, 900 * time.Millisecond, 1700 * time.Millisecond, 3 * time.Second}

func TestCtrlCAtAnyMoment(t *testing.T) {
	t.Parallel()
	c := newLocal(t)
	for _, d := range after {
		cmd := c.command("up")
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
		_ = cmd.Process.Signal(os.Interrupt)
		// Before it has done or said anything, the signal just ends it.
		if err := cmd.Wait(); err != nil && out.Len() > 0 {
			t.Errorf("Ctrl-C after %v: up ended with %v, want exit code 0; it said:\n%s", d, err, &out)
		}
		c.gone()
	}
	c.do("up", "--detach")
	c.daemon()
	c.do("down")
	c.gone()
	if _, err := os.Stat(filepath.Join(c.dir, "etcd")); err != nil {
		t.Errorf("down without --purge removed the data: %v", err)
	}
}

func TestKillAtAnyMoment(t *testing.T) {
	t.Parallel()
	c := newLocal(t)
	for i, d := range after {
		cmd := c.command("up")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if i%2 == 0 { // else the next up has to clean up
			c.do("down", "--purge")
			c.gone()
		}
	}
	c.do("up", "--detach")
	c.daemon()
}

// TestRunningPodsSurvive kills what manages pods; the pods notice nothing.
func TestRunningPodsSurvive(t *testing.T) {
	t.Parallel()
	c := newLocal(t)
	c.do("up", "--detach")
	before := c.daemon()
	kill := func(what string, pid func() int) {
		old := pid()
		if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %s: %v", what, err)
		}
		c.soon("another "+what, func() bool { return pid() != old && pid() != 0 })
	}
	kill("server", func() int { return c.state().Server.PID })
	kill("agent", func() int { return c.state().Nodes["node-1"].Agent.PID })
	c.soon("the API answers", func() bool { return c.command("kubectl", "get", "nodes").Run() == nil })
	// A change that the killed agent must see shows that it is at work again.
	c.do("kubectl", "run", "after", "--image=everynode.io/demo:v1", `--overrides={"spec":{"nodeName":"node-1"}}`, "--", "http", "--port", "8080")
	c.do("kubectl", "wait", "--for=condition=Ready", "pod/after", "--timeout=120s")
	c.soon("every container is ready", func() bool { return strings.Count(c.containers(), " true\n") == 2 })
	if now := c.containers(); now != before {
		t.Errorf("before the kills the containers were\n%sand now they are\n%s", before, now)
	}
}

func TestTwoClusters(t *testing.T) {
	t.Parallel()
	a, b := newLocal(t), newLocal(t)
	a.do("up", "--detach")
	b.do("up", "--detach")
	inA, inB := a.daemon(), b.daemon()
	if strings.Count(inA, " true\n") != 2 || strings.Count(inB, " true\n") != 2 {
		t.Fatalf("not every node runs its daemon:\n%s%s", inA, inB)
	}
	// The same folder again: up says how to use it, a server is refused.
	if text := a.do("up"); !strings.Contains(text, "This cluster runs already") {
		t.Errorf("a second up said %q", text)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	refused(t, a.command("server", "--listen", "127.0.0.1:"+port), "in use by another everynode server ("+fmt.Sprint("process ", a.state().Server.PID))
	a.do("down")
	a.gone()
	if now := b.containers(); now != inB {
		t.Errorf("stopping one cluster changed the other from\n%sto\n%s", inB, now)
	}
}
