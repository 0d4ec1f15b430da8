package local

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/images"
	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/machine"
	"github.com/everynode/everynode/internal/local/network"
	"github.com/everynode/everynode/internal/local/nodeinit"
	"github.com/everynode/everynode/internal/local/process"
	"github.com/everynode/everynode/internal/local/progress"
	"github.com/everynode/everynode/internal/local/remains"
)

// TestMain lets this test program be the first process of a node, as the
// everynode program is.
func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], []string{"up", "node-init"}) {
		if err := nodeinit.Run(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// realCluster makes the network of a cluster of real nodes in a fresh data dir,
// and removes everything of it after the test.
func realCluster(t *testing.T) *cluster {
	t.Helper()
	machine := machine.Inspect(t.Context())
	if missing := machine.Missing(); !machine.Root || len(missing) > 0 {
		t.Skipf("real nodes need root and %v", missing)
	}
	if err := images.Built(); err != nil {
		t.Skip(err)
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := layout.Options{DataDir: t.TempDir(), Nodes: 2, APIPort: 6443, Executable: executable}
	taken, err := network.Routes()
	if err != nil {
		t.Fatal(err)
	}
	subnet, err := layout.PickSubnet(layout.ClusterID(o.DataDir), taken)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{options: o, machine: machine, plan: layout.New(o, layout.RuntimeContainerd, subnet),
		report: func(progress.Event) {}}
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := remains.Remove(context.Background(), c.ledger.Read()); err != nil {
			t.Errorf("remove the cluster: %v", err)
		}
		o, err := remains.Observe(c.ledger.Read())
		if err != nil || len(o.Netns)+len(o.Strays)+len(o.Cgroups) > 0 || o.HostLink {
			t.Errorf("left of the cluster: %+v (%v)", o, err)
		}
	})
	if _, err := c.makeNetwork(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// inNode runs a program of this machine in a node and returns its output.
func inNode(t *testing.T, init process.Process, log string, argv ...string) (string, error) {
	t.Helper()
	cmd, err := process.Command{Path: machine.LookPath(argv[0]), Name: argv[0], Args: argv[1:], Log: log}.StartInside(init)
	if err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	out, readErr := os.ReadFile(log)
	if readErr != nil {
		t.Fatal(readErr)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), err
}

func TestARealNode(t *testing.T) {
	c := realCluster(t)
	inits := map[string]process.Process{}
	for _, node := range c.plan.Nodes {
		init, down, err := c.bootNode(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		inits[node.Name] = init
		t.Cleanup(func() {
			if err := init.Kill(context.Background()); err != nil {
				t.Error(err)
			}
			<-down
		})
	}
	one, two := c.plan.Nodes[0], c.plan.Nodes[1]
	init := inits[one.Name]
	log := filepath.Join(t.TempDir(), "out")
	run := func(argv ...string) string {
		t.Helper()
		out, err := inNode(t, init, log, argv...)
		if err != nil {
			t.Errorf("%v: %v: %s", argv, err, out)
		}
		return out
	}
	if got := run("hostname"); got != one.Name {
		t.Errorf("the node's host name is %q", got)
	}
	if got := run("cat", "/proc/1/comm"); got != "pause" {
		t.Errorf("the node's process 1 is %q", got)
	}
	if got := run("cat", "/proc/sys/net/ipv4/ip_forward"); got != "1" {
		t.Errorf("IPv4 forwarding in the node is %q", got)
	}
	if got := run("ls", "/run"); got != "everynode\nlock\nnetns" {
		t.Errorf("the node's /run holds %q", got)
	}
	for _, dir := range []struct{ inside, outside string }{{"/var/log", "log"}, {"/var/lib", "lib"}, {"/etc/cni", "cni"}} {
		run("touch", dir.inside+"/mark")
		if _, err := os.Stat(filepath.Join(c.plan.NodeDir(one.Name), dir.outside, "mark")); err != nil {
			t.Errorf("%s is not the node's own: %v", dir.inside, err)
		}
		if _, err := os.Stat(dir.inside + "/mark"); err == nil {
			t.Errorf("%s of the node is the host's", dir.inside)
		}
	}
	run("test", "-x", nodeinit.CNIBin+"/bridge")
	run("touch", nodeinit.CNIBin+"/mark")
	if _, err := os.Stat(nodeinit.CNIBin + "/mark"); err == nil {
		t.Errorf("%s of the node is the host's", nodeinit.CNIBin)
	}
	hosts := filepath.Join(c.plan.RegistriesDir(), "example.test", "hosts.toml")
	if err := os.MkdirAll(filepath.Dir(hosts), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hosts, []byte("server = \"http://example.test\""), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := run("cat", nodeinit.Registries+"/example.test/hosts.toml"); got != "server = \"http://example.test\"" {
		t.Errorf("a registry's file that came after the node's start reads %q in it", got)
	}
	if out, err := inNode(t, init, log, "touch", nodeinit.Registries+"/mark"); err == nil ||
		!strings.Contains(out, "Read-only") {
		t.Errorf("the node can write what all nodes read: %v: %s", err, out)
	}
	if rss := run("grep", "VmRSS", "/proc/1/status"); !smallerThan(rss, 2048) {
		t.Errorf("the pause program takes %s, more than 2 MiB", rss)
	}
	for _, peer := range []string{two.IP.String(), c.plan.Gateway.String()} {
		// A connection that is refused has been there and back.
		out, _ := inNode(t, init, log, "bash", "-c", "exec 3<>/dev/tcp/"+peer+"/9")
		if !strings.Contains(out, "refused") {
			t.Errorf("%s does not reach %s: %s", one.Name, peer, out)
		}
	}
}

// smallerThan reports whether a line of /proc/PID/status says less than a number of KiB.
func smallerThan(line string, kib int) bool {
	var n int
	_, err := fmt.Sscanf(line, "VmRSS: %d kB", &n)
	return err == nil && n < kib
}

func TestContainerdOnARealNode(t *testing.T) {
	c := realCluster(t)
	node := c.plan.Nodes[0]
	ctx, cancel := context.WithCancel(t.Context())
	booted, ended := make(chan error, 1), make(chan error, 1)
	go func() { ended <- c.runNode(ctx, node, booted) }()
	stopped := false
	t.Cleanup(func() {
		cancel()
		if !stopped {
			<-ended
		}
	})
	if err := <-booted; err != nil {
		t.Fatal(err)
	}
	state := c.ledger.Read().Nodes[node.Name]
	store, err := images.OpenStore(socketOf(state.Init), state.Snapshotter)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	have, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	archive, err := images.Load()
	if err != nil {
		t.Fatal(err)
	}
	want, err := archive.Digests()
	if err != nil {
		t.Fatal(err)
	}
	for name, digest := range want {
		if have[name] != digest {
			t.Errorf("the node has %s as %q, want %s", name, have[name], digest)
		}
	}

	// Containerd ends: it comes back, and the node stays.
	if err := state.Containerd.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	again := waitFor(t, c, node.Name, func(n layout.NodeState) bool {
		return n.Containerd != state.Containerd &&
			n.Containerd.Alive()
	})
	if again.Init != state.Init {
		t.Errorf("the end of containerd ended the node: %+v, before %+v", again, state)
	}

	// The node's first process ends: the node boots again.
	if err := state.Init.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	reborn := waitFor(t, c, node.Name, func(n layout.NodeState) bool {
		return n.Init != state.Init && n.Init.Alive() &&
			n.Containerd.Alive()
	})
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("stop the node: %v", err)
	}
	stopped = true
	if reborn.Init.Alive() || reborn.Containerd.Alive() {
		t.Errorf("the node's processes outlive it: %+v", reborn)
	}
}

func waitFor(t *testing.T, c *cluster, node string, is func(layout.NodeState) bool) layout.NodeState {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if n := c.ledger.Read().Nodes[node]; is(n) {
			return n
		}
	}
	t.Fatalf("%s did not come to that: %+v", node, c.ledger.Read().Nodes[node])
	return layout.NodeState{}
}

// A server that was started when the supervisor was killed has its mark only.
func TestLeftoversWithoutARecord(t *testing.T) {
	dataDir := t.TempDir()
	p := layout.New(layout.Options{DataDir: dataDir, Nodes: 1, APIPort: 6443}, layout.RuntimeSimulated, netip.Prefix{})
	cmd, err := process.Command{Path: machine.LookPath("sleep"), Name: "sleep", Args: []string{"600"}, Mark: p.Mark(),
		Log: filepath.Join(dataDir, "log")}.Start()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	dir, waiting := fmt.Sprintf("/proc/%d", cmd.Process.Pid), time.Now().Add(time.Minute)
	for !remains.HasMark(process.Environment(dir, waiting), p) && time.Now().Before(waiting) {
		time.Sleep(time.Millisecond) // it is not yet what it will be
	}
	boot, err := process.BootID()
	if err != nil {
		t.Fatal(err)
	}
	n, err := remains.Remove(t.Context(), layout.State{Version: layout.StateVersion, Phase: layout.PhaseStarting, Plan: p,
		BootID: boot})
	if err != nil || n != 1 {
		t.Errorf("removed %d things (%v), want the one process", n, err)
		_ = cmd.Process.Kill()
	}
	<-ended
}

// A supervisor that is killed leaves a whole cluster; removeLeftovers, which the
// next up and down begin with, finds all of it. realCluster checks that.
func TestLeftoversOfAKilledSupervisor(t *testing.T) {
	c := realCluster(t)
	node := c.plan.Nodes[0]
	init, down, err := c.bootNode(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	for _, mount := range machine.CgroupMounts() {
		if err := os.MkdirAll(filepath.Join(mount, c.plan.NodeCgroup(node.Name), "pod", "container"), 0o755); err != nil {
			t.Logf("no cgroup in %s: %v", mount, err)
		}
	}
	// What was started and not written down yet.
	if err := c.ledger.UpdateNode(node.Name, func(n *layout.NodeState) { *n = layout.NodeState{} }); err != nil {
		t.Fatal(err)
	}
	n, err := remains.Remove(t.Context(), c.ledger.Read())
	if err != nil || n == 0 {
		t.Errorf("removed %d things: %v", n, err)
	}
	select {
	case <-down:
	case <-time.After(time.Minute):
		t.Error("the node's first process was not found")
	}
	if init.Alive() {
		t.Error("the node's first process still runs")
	}
	if out, err := exec.Command("nft", "list", "tables").CombinedOutput(); err != nil ||
		strings.Contains(string(out), c.plan.NATTable()) {
		t.Errorf("the packet filter table is left (%v): %s", err, out)
	}
}
