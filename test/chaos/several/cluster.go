package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/testenv/freeport"
)

// cluster is three servers of `everynode up`.
type cluster struct {
	binary, dir string
	id          string
	servers     []server
	disks       map[string]disk
	// faults is what the names of those have in them that happen.
	faults string
}

type server struct {
	name, ip string
	client   kubernetes.Interface
}

// state is what is read of the cluster's state file.
type state struct {
	Plan struct {
		ID      string
		APIPort int
		Servers []struct{ Name, IP string }
	}
	Server struct{ PID int }
	Others map[string]struct{ PID int }
}

// start makes the cluster; it is to be removed also after an error.
func start(ctx context.Context, binary, dir string) (*cluster, error) {
	c := &cluster{binary: binary, dir: dir, disks: map[string]disk{}}
	if err := c.mountDisks(); err != nil {
		return c, err
	}
	port, err := freeport.Take()
	if err != nil {
		return c, err
	}
	up := exec.CommandContext(ctx, binary, "up", "--data-dir", dir, "--api-port", fmt.Sprint(port), "--runtime", "containerd", "--nodes", "1", "--control-planes", "3", "--detach")
	if out, err := up.CombinedOutput(); err != nil {
		return c, fmt.Errorf("start a cluster: %w: %s", err, out)
	}
	s, err := c.state()
	if err != nil {
		return c, err
	}
	c.id = s.Plan.ID
	for _, one := range s.Plan.Servers {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
		if err != nil {
			return c, err
		}
		config.Host, config.QPS, config.Timeout = fmt.Sprintf("https://%s:%d", one.IP, s.Plan.APIPort), -1, 5*time.Second
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return c, err
		}
		c.servers = append(c.servers, server{one.Name, one.IP, client})
	}
	return c, nil
}

func (c *cluster) state() (s state, err error) {
	raw, err := os.ReadFile(filepath.Join(c.dir, "local.json"))
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

func (c *cluster) remove() error {
	err := run(exec.Command(c.binary, "down", "--data-dir", c.dir))
	for _, d := range c.disks {
		err = errors.Join(err, d.unmount())
	}
	return errors.Join(err, run(exec.Command(c.binary, "down", "--data-dir", c.dir, "--purge")))
}

// pid is a server's process, as it is now.
func (c *cluster) pid(name string) (int, error) {
	s, err := c.state()
	if err != nil {
		return 0, err
	}
	pid := s.Others[name].PID
	if name == s.Plan.Servers[0].Name {
		pid = s.Server.PID
	}
	if pid == 0 {
		return 0, errors.New("it has no process")
	}
	return pid, nil
}

func (c *cluster) signal(name string, signal syscall.Signal) error {
	pid, err := c.pid(name)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, signal)
}

func (c *cluster) cable(name, to string) error {
	return run(exec.Command("ip", "-n", "everynode-"+c.id, "link", "set", strings.ReplaceAll(name, "-", ""), to))
}

const cutTable = "everynode_chaos"

// cut drops what a server gets, or what it sends, in its own network namespace; "" ends that.
func (c *cluster) cut(name, way string) error {
	rules := "table inet " + cutTable + " {}\ndelete table inet " + cutTable + "\n"
	if way != "" {
		device := map[string]string{"input": "iifname", "output": "oifname"}[way]
		rules += fmt.Sprintf("table inet %s { chain c { type filter hook %s priority 0; policy accept; %s eth0 drop; }; }\n", cutTable, way, device)
	}
	nft := exec.Command("nsenter", "--net=/run/netns/everynode-"+c.id+"-"+name, "nft", "-f", "-")
	nft.Stdin = strings.NewReader(rules)
	return run(nft)
}

// heal ends all that goes wrong.
func (c *cluster) heal() {
	for _, s := range c.servers {
		_ = c.cable(s.name, "up")
		_ = c.cut(s.name, "")
		_ = c.signal(s.name, syscall.SIGCONT)
		_ = c.disks[s.name].free()
	}
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}
