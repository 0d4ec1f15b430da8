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
	"testing"

	"github.com/everynode/everynode/internal/local/layout"
	"github.com/everynode/everynode/internal/local/localtest"
	"github.com/everynode/everynode/internal/local/machine"
	"github.com/everynode/everynode/internal/local/network"
	"github.com/everynode/everynode/internal/local/nodeinit"
	"github.com/everynode/everynode/internal/local/progress"
	"github.com/everynode/everynode/internal/local/remains"
)

// bareCluster has a network and no nodes.
func bareCluster(t *testing.T) *cluster {
	t.Helper()
	o := layout.Options{DataDir: t.TempDir(), Nodes: 1, APIPort: 6443}
	subnet, err := layout.PickSubnet(layout.ClusterID(o.DataDir), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{options: o, machine: machine.Inspect(t.Context()), plan: layout.New(o, layout.RuntimeContainerd, subnet),
		report: func(progress.Event) {}}
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	return c
}

// needs returns what a node of the cluster would miss on the machine.
func needs() error {
	forwarding, err := os.ReadFile(network.ForwardingFile)
	if err == nil && strings.TrimSpace(string(forwarding)) != "1" {
		err = errors.New("IPv4 forwarding is off")
	}
	for _, dir := range []string{network.NetnsDir, "/etc/cni", nodeinit.CNIBin} {
		_, statErr := os.Stat(dir)
		err = errors.Join(err, statErr)
	}
	return err
}

// Clusters that start and stop at the same time leave each other what they
// need, and the last one leaves the machine as it was.
func TestClustersShareAFreshMachine(t *testing.T) {
	if !localtest.OnFreshMachine(t) {
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
	if forwarding, err := os.ReadFile(network.ForwardingFile); err != nil || strings.TrimSpace(string(forwarding)) != "0" {
		t.Errorf("IPv4 forwarding is left at %s (%v)", forwarding, err)
	}
	for _, dir := range []string{network.NetnsDir, "/etc/cni", "/opt/cni", machine.ChangesDir} {
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
	_, removeErr := remains.Remove(context.WithoutCancel(ctx), c.ledger.Read())
	return errors.Join(err, removeErr)
}

// "ip netns add" mounts the folder of the named namespaces over itself. A
// cluster from before can be removed nevertheless, and the user's namespace stays.
func TestNetnsOfTheUser(t *testing.T) {
	if !localtest.OnFreshMachine(t) {
		return
	}
	c := bareCluster(t)
	if _, err := c.makeNetwork(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second"} {
		if out, err := exec.Command(machine.LookPath("ip"), "netns", "add", name).CombinedOutput(); err != nil {
			t.Fatalf("ip netns add: %v: %s", err, out)
		}
	}
	if _, err := remains.Remove(t.Context(), c.ledger.Read()); err != nil {
		t.Errorf("remove the cluster: %v", err)
	}
	names, err := filepath.Glob(network.NetnsDir + "/*")
	if err != nil || strings.Join(names, " ") != network.NetnsDir+"/first "+network.NetnsDir+"/second" {
		t.Errorf("namespaces are %v (%v), want the user's", names, err)
	}
	if out, err := exec.Command(machine.LookPath("ip"), "netns", "exec", "first", "true").CombinedOutput(); err != nil {
		t.Errorf("the user's namespace does not work any more: %v: %s", err, out)
	}
}
