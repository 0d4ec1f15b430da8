package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// freshMachine is set for tests that run in a process with mounts and a network
// of its own, in which everything is as on a machine that never had a cluster.
const freshMachine = "EVERYNODE_TEST_FRESH_MACHINE"

// onFreshMachine runs the calling test again on a fresh machine, and tells
// whether this is that run.
func onFreshMachine(t *testing.T) bool {
	t.Helper()
	if os.Getenv(freshMachine) != "" {
		makeFresh(t)
		return true
	}
	machine := inspectMachine(t.Context())
	if missing := machine.missing(); !machine.Root || len(missing) > 0 {
		t.Skipf("real nodes need root and %v", missing)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), freshMachine+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("on a fresh machine: %v\n%s", err, out)
	}
	return false
}

// makeFresh hides the machine's folders that clusters change, and gives the
// network a way out.
func makeFresh(t *testing.T) {
	t.Helper()
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	for _, dir := range []string{"/run", "/etc", "/opt"} {
		err = errors.Join(err, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"))
	}
	err = errors.Join(err, os.WriteFile(forwardingFile, []byte("0"), 0o644))
	for _, args := range []string{"link add outside type veth peer name beyond", "link set outside up", "route add default dev outside"} {
		if out, ipErr := exec.Command(lookPath("ip"), strings.Fields(args)...).CombinedOutput(); ipErr != nil {
			err = errors.Join(err, fmt.Errorf("ip %s: %w: %s", args, ipErr, out))
		}
	}
	if err != nil {
		t.Fatalf("make the machine fresh: %v", err)
	}
}

// bareCluster has a network and no nodes.
func bareCluster(t *testing.T) *cluster {
	t.Helper()
	o := Options{DataDir: t.TempDir(), Nodes: 1, APIPort: 6443}
	subnet, err := pickSubnet(clusterID(o.DataDir), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{options: o, machine: inspectMachine(t.Context()), plan: newPlan(o, RuntimeContainerd, subnet), report: func(Event) {}}
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	return c
}

// needs returns what a node of the cluster would miss on the machine.
func needs() error {
	forwarding, err := os.ReadFile(forwardingFile)
	if err == nil && strings.TrimSpace(string(forwarding)) != "1" {
		err = errors.New("IPv4 forwarding is off")
	}
	for _, dir := range []string{netnsDir, "/etc/cni", nodeCNIBin} {
		_, statErr := os.Stat(dir)
		err = errors.Join(err, statErr)
	}
	return err
}

// Clusters that start and stop at the same time leave each other what they
// need, and the last one leaves the machine as it was.
func TestClustersShareAFreshMachine(t *testing.T) {
	if !onFreshMachine(t) {
		return
	}
	const clusters, rounds = 3, 6
	var all sync.WaitGroup
	for range clusters {
		c := bareCluster(t)
		all.Go(func() {
			for round := range rounds {
				err := oneRound(t.Context(), c)
				if err != nil {
					t.Errorf("cluster %s, round %d: %v", c.plan.ID, round, err)
				}
			}
		})
	}
	all.Wait()
	if forwarding, err := os.ReadFile(forwardingFile); err != nil || strings.TrimSpace(string(forwarding)) != "0" {
		t.Errorf("IPv4 forwarding is left at %s (%v)", forwarding, err)
	}
	for _, dir := range []string{netnsDir, "/etc/cni", "/opt/cni", hostDir} {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left (%v)", dir, err)
		}
	}
}

func oneRound(ctx context.Context, c *cluster) error {
	_, err := c.makeNetwork(ctx)
	if err != nil {
		err = fmt.Errorf("make the network: %w", err)
	}
	for range 20 {
		if err == nil {
			err = needs()
		}
	}
	_, removeErr := removeLeftovers(context.WithoutCancel(ctx), c.ledger.read())
	return errors.Join(err, removeErr)
}

// "ip netns add" mounts the folder of the named namespaces over itself. A
// cluster from before can be removed nevertheless, and the user's namespace stays.
func TestNetnsOfTheUser(t *testing.T) {
	if !onFreshMachine(t) {
		return
	}
	c := bareCluster(t)
	if _, err := c.makeNetwork(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second"} {
		if out, err := exec.Command(lookPath("ip"), "netns", "add", name).CombinedOutput(); err != nil {
			t.Fatalf("ip netns add: %v: %s", err, out)
		}
	}
	if _, err := removeLeftovers(t.Context(), c.ledger.read()); err != nil {
		t.Errorf("remove the cluster: %v", err)
	}
	names, err := filepath.Glob(netnsDir + "/*")
	if err != nil || strings.Join(names, " ") != netnsDir+"/first "+netnsDir+"/second" {
		t.Errorf("namespaces are %v (%v), want the user's", names, err)
	}
	if out, err := exec.Command(lookPath("ip"), "netns", "exec", "first", "true").CombinedOutput(); err != nil {
		t.Errorf("the user's namespace does not work any more: %v: %s", err, out)
	}
}
