// Package machines gives tests machines with real containers for a control plane that is not ours: each has a network,
// folders and a containerd of its own, as nodes of `everynode up` have, and can lose its power and its disk.
package machines

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/everynode/everynode/internal/images"
	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/machine"
	"github.com/everynode/everynode/internal/local/network"
	"github.com/everynode/everynode/internal/local/nodeinit"
	"github.com/everynode/everynode/internal/local/process"
	"github.com/everynode/everynode/internal/local/remains"
	"github.com/everynode/everynode/internal/testenv/eventually"
	"github.com/everynode/everynode/internal/testenv/needs"
)

// patience is how long a machine may take to be ready, on one that is busy.
const patience = 3 * time.Minute

// podNetwork gives the pods of one machine addresses. Nobody leads from machine to machine.
const podNetwork = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods0", "isGateway": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]}}]}
`

// Fleet are machines on one network.
type Fleet struct {
	program string
	plan    layout.Plan
	ledger  *layout.Ledger
	plugins string
	runtime string
	// All are the machines, in the order of their names: node-1, node-2 and so on.
	All []*Machine
}

// Machine is one of them.
type Machine struct {
	// Name is the host name, and IP the address at which this machine reaches it.
	Name, IP string

	fleet *Fleet
	node  layout.Node
	init  process.Process
	down  chan struct{}
}

// New makes so many machines, and boots them. program is everynode's file. At the end of the test nothing is left of
// them, and their files go with the test's. A test is skipped where they cannot be.
func New(t *testing.T, program string, count int) *Fleet {
	t.Helper()
	needs.Root(t, "needs root, to run containers")
	here := machine.Inspect(t.Context())
	if missing := here.Missing(); len(missing) > 0 {
		t.Skipf("machines with containers need %v", missing)
	}
	o := layout.Options{DataDir: t.TempDir(), Nodes: count, APIPort: layout.DefaultAPIPort, Executable: program}
	taken, err := network.Routes()
	if err != nil {
		t.Fatal(err)
	}
	subnet, err := layout.PickSubnet(layout.ClusterID(o.DataDir), taken)
	if err != nil {
		t.Fatal(err)
	}
	f := &Fleet{
		program: program, plan: layout.New(o, layout.RuntimeContainerd, subnet), plugins: here.CNIBin,
		runtime: here.Containerd,
	}
	f.note(t)
	t.Cleanup(func() { f.remove(t) })
	f.connect(t)
	for _, node := range f.plan.Nodes {
		m := &Machine{Name: node.Name, IP: node.IP.String(), fleet: f, node: node}
		f.All = append(f.All, m)
		m.Boot(t)
	}
	return f
}

// note writes down what is about to be made, as `everynode up` does: everynode down finds it there.
func (f *Fleet) note(t *testing.T) {
	t.Helper()
	boot, err := process.BootID()
	if err != nil {
		t.Fatal(err)
	}
	self, err := process.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	f.ledger = &layout.Ledger{State: layout.State{
		Version: layout.StateVersion, Phase: layout.PhaseStarting, Plan: f.plan, BootID: boot, Supervisor: self,
	}}
	if err := f.ledger.Update(func(*layout.State) {}); err != nil {
		t.Fatal(err)
	}
}

// Stop ends all that runs on the machines, as before the control plane ends: agents go on asking it.
func (f *Fleet) Stop(t *testing.T) {
	for _, m := range f.All {
		if err := m.init.Kill(context.Background()); err != nil {
			t.Errorf("end %s: %v", m.Name, err)
		}
	}
}

// remove ends all that there is, and wants nothing to be left.
func (f *Fleet) remove(t *testing.T) {
	if t.Failed() {
		for _, m := range f.All {
			t.Logf("the end of the agent's log on %s:\n%s", m.Name, m.tail(40))
		}
	}
	if _, err := remains.Remove(context.Background(), f.ledger.Read()); err != nil {
		t.Errorf("remove the machines: %v", err)
	}
	o, err := remains.Observe(f.ledger.Read())
	if err != nil || len(o.Netns)+len(o.Strays)+len(o.Cgroups) > 0 || o.HostLink {
		t.Errorf("left of the machines: %+v (%v)", o, err)
	}
	for _, m := range f.All {
		if m.down != nil {
			<-m.down
		}
	}
}

// connect makes what the machines are plugged into.
func (f *Fleet) connect(t *testing.T) {
	t.Helper()
	release, err := machine.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, dir := range []string{network.NetnsDir, "/etc/cni", filepath.Dir(nodeinit.CNIBin), nodeinit.CNIBin} {
		if err := machine.MakeDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := network.MakeSwitch(f.plan); err != nil {
		t.Fatal(err)
	}
}

// Gateway is the address at which the machines reach this one.
func (f *Fleet) Gateway() string { return f.plan.Gateway.String() }

// PlainRegistry has the machines know that a registry at HOST:PORT speaks plain HTTP.
func (f *Fleet) PlainRegistry(t *testing.T, host string) {
	t.Helper()
	path := filepath.Join(f.plan.RegistriesDir(), host, "hosts.toml")
	text := fmt.Sprintf("server = %q\n\n[host]\n", "http://"+host)
	write(t, path, text)
}

// write makes a file, and the folders above it.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (m *Machine) dir() string { return m.fleet.plan.NodeDir(m.Name) }

// Boot switches the machine on. It has the disk that it had, and runs a containerd.
func (m *Machine) Boot(t *testing.T) {
	t.Helper()
	if err := network.Connect(m.fleet.plan, m.node); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(m.dir(), "cni", "net.d", "10-pods.conflist"), podNetwork)
	snapshotter := m.first(t)
	write(t, filepath.Join(m.dir(), "lib", "everynode", filepath.Base(nodeinit.ContainerdConfigFile)),
		nodeinit.ContainerdConfig(images.Pause, snapshotter))
	m.inside(t, m.fleet.runtime, "containerd", m.fleet.plan.ContainerdLog(m.Name), nil,
		"--config", nodeinit.ContainerdConfigFile)
	m.takesImages(t, snapshotter)
}

// first starts the machine's first process, and returns how its containerd keeps images.
func (m *Machine) first(t *testing.T) (snapshotter string) {
	t.Helper()
	spec := nodeinit.Spec{Name: m.Name, Executable: m.fleet.program, Plugins: m.fleet.plugins, Binds: []nodeinit.Bind{
		{From: filepath.Join(m.dir(), "log"), To: "/var/log"},
		{From: filepath.Join(m.dir(), "lib"), To: "/var/lib"},
		{From: filepath.Join(m.dir(), "cni"), To: "/etc/cni"},
		{From: m.fleet.plan.RegistriesDir(), To: nodeinit.Registries, ReadOnly: true},
	}}
	for _, b := range spec.Binds {
		if err := os.MkdirAll(b.From, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd, log, err := process.Command{
		Path: m.fleet.program, Name: "everynode", Args: []string{"up", "node-init"}, Mark: m.fleet.plan.Mark(),
		Log: filepath.Join(m.dir(), "log", "boot.log"),
	}.Build()
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	orders, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer answers.Close()
	cmd.Stdout = in
	cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	err = startIn(cmd, m.fleet.plan.NodeNetns(m.Name))
	_ = in.Close()
	if err != nil {
		t.Fatal(err)
	}
	down := make(chan struct{})
	m.down = down
	go func() { _ = cmd.Wait(); close(down) }()
	m.init, err = process.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	err = m.fleet.ledger.UpdateNode(m.Name, func(n *layout.NodeState) { n.Init = m.init })
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(orders).Encode(spec); err != nil {
		t.Fatal(err)
	}
	_ = orders.Close()
	raw, err := io.ReadAll(answers)
	if err != nil {
		t.Fatal(err)
	}
	var report nodeinit.Report
	if err := json.Unmarshal(raw, &report); err != nil || report.Error != "" {
		t.Fatalf("boot %s: %q (%v)", m.Name, raw, err)
	}
	return report.Snapshotter
}

// startIn starts a command in a named network namespace.
func startIn(cmd *exec.Cmd, name string) error {
	ns, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", name, err)
	}
	defer ns.Close()
	return process.OnOwnThread(func() error {
		if err := unix.Setns(int(ns), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", name, err)
		}
		return cmd.Start()
	})
}

// inside starts a program that runs until the machine loses its power.
func (m *Machine) inside(t *testing.T, path, name, log string, env []string, args ...string) {
	t.Helper()
	cmd, err := process.Command{
		Path: path, Name: name, Args: args, Env: env, Mark: m.fleet.plan.Mark(), Log: log,
	}.StartInside(m.init)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
}

// takesImages waits for the machine's containerd, and gives it the images that the program carries.
func (m *Machine) takesImages(t *testing.T, snapshotter string) {
	t.Helper()
	socket := filepath.Join("/proc", strconv.Itoa(m.init.PID), "root", nodeinit.ContainerdSocket)
	eventually.Nil(t, patience, "containerd of "+m.Name+" answers", func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	store, err := images.OpenStore(socket, snapshotter)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	archive, err := images.Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Ensure(t.Context(), archive); err != nil {
		t.Fatalf("give %s its images: %v", m.Name, err)
	}
}

// Join starts the machine's agent, which joins the cluster of a server with a token, unless it has joined before.
func (m *Machine) Join(t *testing.T, server, token string, flags ...string) {
	t.Helper()
	args := append([]string{
		"agent", "--server", server, "--node-name", m.Name, "--node-ip", m.IP, "--data-dir", nodeinit.DataDir,
		"--runtime-endpoint", "unix://" + nodeinit.ContainerdSocket, "--cgroup-root", m.fleet.plan.NodeCgroup(m.Name),
		"--pod-network", "none", "--service-proxy", "none", "--name-server", "none", "--cluster-dns", "",
		"--eviction-hard", "none", "--image-gc-high-threshold", "100", "--pod-max-pids", "1024",
	}, flags...)
	m.inside(t, nodeinit.Executable, "everynode", m.log(), []string{"EVERYNODE_TOKEN=" + token}, args...)
}

func (m *Machine) log() string { return m.fleet.plan.AgentLog(m.Name) }

func (m *Machine) tail(lines int) string {
	out, err := exec.Command("tail", "-n", strconv.Itoa(lines), m.log()).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// PowerOff ends everything on the machine at once, without a word to anybody.
func (m *Machine) PowerOff(t *testing.T) {
	t.Helper()
	if err := m.init.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-m.down
	m.down = nil
	if err := network.Disconnect(m.fleet.plan, m.node); err != nil {
		t.Fatal(err)
	}
}

// Erase gives a machine that is off another disk, on which nothing is.
func (m *Machine) Erase(t *testing.T) {
	t.Helper()
	for _, name := range []string{"lib", "cni"} {
		if err := os.RemoveAll(filepath.Join(m.dir(), name)); err != nil {
			t.Fatal(err)
		}
	}
}

// Run runs a program of this machine in the network of that one, such as nft, and wants it to end well.
func (m *Machine) Run(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(machine.LookPath(program), args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := startIn(cmd, m.fleet.plan.NodeNetns(m.Name))
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("run %s %v on %s: %v: %s", program, args, m.Name, err, out.String())
	}
}

// Process is one that runs on a machine, as this machine sees it.
type Process = process.Process

// Containers are the first processes of the containers that run on the machine, but for those that hold pods' networks.
func (m *Machine) Containers() []Process { return process.PodProcesses(m.init) }
