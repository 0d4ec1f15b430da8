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

// cluster is three servers, wherever they run.
type cluster struct {
	place
	servers []server
	// faults is what the names of those have in them that happen.
	faults string
	// pace is what a fault lasts at least, and a tenth of what it lasts at most.
	pace time.Duration
	// deck are the kinds of faults that are still to come before one comes again.
	deck []int
}

// place is where servers run, and what can go wrong there.
type place interface {
	// kinds are the faults that a server can have.
	kinds(ctx context.Context, name string, j *journal) []fault
	// heal ends all that goes wrong.
	heal()
	// said is how a server is and what it said last.
	said(name string) string
	remove() error
}

// namespaces are three servers of `everynode up`.
type namespaces struct {
	binary, dir string
	id          string
	servers     []server
	disks       map[string]disk
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
	c := &namespaces{binary: binary, dir: dir, disks: map[string]disk{}}
	err := c.start(ctx)
	return &cluster{place: c, servers: c.servers, pace: time.Second}, err
}

func (c *namespaces) start(ctx context.Context) error {
	if err := c.mountDisks(); err != nil {
		return err
	}
	port, err := freeport.Take()
	if err != nil {
		return err
	}
	up := exec.CommandContext(
		ctx, c.binary, "up", "--data-dir", c.dir, "--api-port", fmt.Sprint(port), "--runtime", "containerd", "--nodes", "1",
		"--control-planes", "3", "--detach",
	)
	if out, err := up.CombinedOutput(); err != nil {
		return fmt.Errorf("start a cluster: %w: %s", err, out)
	}
	s, err := c.state()
	if err != nil {
		return err
	}
	c.id = s.Plan.ID
	for _, one := range s.Plan.Servers {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.dir, "kubeconfig"))
		if err != nil {
			return err
		}
		config.Host, config.QPS, config.Timeout = fmt.Sprintf("https://%s:%d", one.IP, s.Plan.APIPort), -1, 5*time.Second
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		c.servers = append(c.servers, server{one.Name, one.IP, client})
	}
	return nil
}

func (c *namespaces) state() (s state, err error) {
	raw, err := os.ReadFile(filepath.Join(c.dir, "local.json"))
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

func (c *namespaces) remove() error {
	err := run(exec.Command(c.binary, "down", "--data-dir", c.dir))
	for _, d := range c.disks {
		err = errors.Join(err, d.unmount())
	}
	return errors.Join(err, run(exec.Command(c.binary, "down", "--data-dir", c.dir, "--purge")))
}

// pid is a server's process, as it is now.
func (c *namespaces) pid(name string) (int, error) {
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

func (c *namespaces) signal(name string, signal syscall.Signal) error {
	pid, err := c.pid(name)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, signal)
}

func (c *namespaces) cable(name, to string) error {
	return run(exec.Command("ip", "-n", "everynode-"+c.id, "link", "set", strings.ReplaceAll(name, "-", ""), to))
}

const cutTable = "everynode_chaos"

// cut drops what a server gets, or what it sends, in its own network namespace; "" ends that.
func (c *namespaces) cut(name, way string) error {
	rules := "table inet " + cutTable + " {}\ndelete table inet " + cutTable + "\n"
	if way != "" {
		device := map[string]string{"input": "iifname", "output": "oifname"}[way]
		rules += fmt.Sprintf(
			"table inet %s { chain c { type filter hook %s priority 0; policy accept; %s eth0 drop; }; }\n",
			cutTable, way, device,
		)
	}
	nft := exec.Command("nsenter", "--net=/run/netns/everynode-"+c.id+"-"+name, "nft", "-f", "-")
	nft.Stdin = strings.NewReader(rules)
	return run(nft)
}

// kinds implements place.
func (c *namespaces) kinds(ctx context.Context, name string, j *journal) []fault {
	return []fault{
		{"kill", func() error { return c.signal(name, syscall.SIGKILL) }, func() error { return nil }},
		{
			"stop", func() error { return c.signal(name, syscall.SIGSTOP) },
			func() error { return c.signal(name, syscall.SIGCONT) },
		},
		{"cable out", func() error { return c.cable(name, "down") }, func() error { return c.cable(name, "up") }},
		{"alone with who watches there", func() error { return c.alone(ctx, name, j) },
			func() error { return c.cable(name, "up") }},
		{"deaf", func() error { return c.cut(name, "input") }, func() error { return c.cut(name, "") }},
		{"mute", func() error { return c.cut(name, "output") }, func() error { return c.cut(name, "") }},
		{"disk full", func() error { return c.fullDisk(ctx, name, j) }, c.disks[name].free},
		{"removed, and joins again", func() error { return c.rejoin(ctx, name) }, func() error { return nil }},
		{
			"disk full and killed", func() error { return errors.Join(c.disks[name].fill(), c.signal(name, syscall.SIGKILL)) },
			c.disks[name].free,
		},
	}
}

// rejoin takes a server off the others' list, and its data away: it is started with an empty folder then, and joins.
// The first one's folder has the data of the nodes as well, so the second goes in its place. What was begun is ended,
// also after the time for faults: a server that was removed and has its data joins nothing.
func (c *namespaces) rejoin(ctx context.Context, name string) error {
	ctx = context.WithoutCancel(ctx)
	if name == c.servers[0].name {
		name = c.servers[1].name
	}
	err := c.takeOff(ctx, name)
	if err != nil {
		return err
	}
	folder := filepath.Join(c.dir, "servers", name)
	// Its process may have been started again with what was just being taken away.
	emptied := false
	return until(ctx, func(ctx context.Context) error {
		if emptied {
			// It may have joined and be slow: without its data it is lost, and joins again only once it is off the list.
			// Where it is not on it, that says so, and there is nothing to do.
			_ = c.takeOff(ctx, name)
		}
		emptied = true
		err := c.empty(name, folder)
		if err != nil {
			return err
		}
		joining, over := context.WithTimeout(ctx, joinPatience)
		defer over()
		return until(joining, func(ctx context.Context) error {
			return c.servers[c.indexOf(name)].client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		})
	})
}

// takeOff takes a server off the others' list.
func (c *namespaces) takeOff(ctx context.Context, name string) error {
	acting, over := context.WithTimeout(ctx, patience)
	defer over()
	return run(exec.CommandContext(acting, c.binary, "members", "remove", name, "--data-dir", c.dir))
}

// joinPatience is how long a server that was emptied may take to join before it is emptied once more.
const joinPatience = 30 * time.Second

// empty takes all files of a server away whose process has ended, or is ended here. A disk is mounted there, which
// stays.
func (c *namespaces) empty(name, folder string) error {
	pid, err := c.pid(name)
	if err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
	}
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		if entry.Name() != "lost+found" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(folder, entry.Name())))
		}
	}
	return err
}

// said implements place.
func (c *namespaces) said(name string) string {
	return fmt.Sprintf("%s: %s", c.disks[name].room(), c.lastLine(name, 0))
}

// heal implements place.
func (c *namespaces) heal() {
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
