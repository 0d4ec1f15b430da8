package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/everynode/everynode/internal/testenv/freeport"
)

// patience is how long a step may take.
const patience = 3 * time.Minute

// programs are those that a scenario may install.
type programs struct {
	old   string // the release before
	older string // the last one that knows no content, pinned images, variants and NodeStartups
	new   string
	// guide is the file with the commands for who goes back to the older one.
	guide string
	// logs is where the logs of servers are left of a scenario that fails.
	logs string
}

// fleet is a cluster whose program is replaced.
type fleet struct {
	old, new string // programs
	program  string // what runs
	dir      string
	real     bool
	servers  int
}

// size is what a cluster consists of.
type size struct {
	runtime        string
	servers, nodes int
}

// with starts a cluster with a program, and stops it when it has been played.
func with(p programs, first string, s size, play func(*fleet) error) (err error) {
	work, err := os.MkdirTemp("", "everynode-upgrade-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	f := &fleet{
		old:     p.old,
		new:     p.new,
		program: filepath.Join(work, "everynode"),
		dir:     filepath.Join(work, "cluster"),
		real:    s.runtime == "containerd",
		servers: s.servers,
	}
	port, err := freeport.Take()
	if err == nil {
		err = f.install(first)
	}
	if err != nil {
		return err
	}
	defer func() {
		if out, stop := exec.Command(f.program, "down", "--data-dir", f.dir, "--purge").CombinedOutput(); stop != nil {
			err = errors.Join(err, fmt.Errorf("stop the cluster: %w: %s", stop, out))
		}
	}()
	up := []string{
		"up",
		"--data-dir",
		f.dir,
		"--api-port",
		fmt.Sprint(port),
		"--runtime",
		s.runtime,
		"--nodes",
		fmt.Sprint(s.nodes),
		"--detach",
	}
	if s.servers > 1 {
		up = append(up, "--control-planes", fmt.Sprint(s.servers))
	}
	if out, err := exec.Command(f.program, up...).CombinedOutput(); err != nil {
		return fmt.Errorf("start a cluster: %w: %s", err, out)
	}
	return play(f)
}

// install puts a program where the cluster's is, in one step, as a package does.
func (f *fleet) install(program string) error {
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }() // it is only read
	to, err := os.OpenFile(f.program+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err = io.Copy(to, from); err == nil {
		err = to.Close()
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.program+".new", f.program); err != nil {
		return err
	}
	return f.installOnNodes()
}

// processes are what the cluster says that runs.
type processes struct {
	Plan struct {
		APIPort int
		Servers []struct{ Name, IP string }
	}
	Server struct{ PID int }
	Others map[string]struct{ PID int }
	Nodes  map[string]struct{ Init, Agent struct{ PID int } }
}

// server is the process of a server, by its number.
func (p processes) server(number int) int {
	if number == 0 {
		return p.Server.PID
	}
	return p.Others[p.Plan.Servers[number].Name].PID
}

func (f *fleet) processes() (p processes, err error) {
	content, err := os.ReadFile(filepath.Join(f.dir, "local.json"))
	if err == nil {
		err = json.Unmarshal(content, &p)
	}
	return p, err
}

// restartServer ends a server; the supervisor starts what is installed now. Of several, the
// next one has to wait until all take part.
func (f *fleet) restartServer(number int) error { return f.endServer(number, syscall.SIGTERM) }

// killServer kills the only server.
func (f *fleet) killServer() error { return f.endServer(0, syscall.SIGKILL) }

func (f *fleet) endServer(number int, how syscall.Signal) error {
	before, err := f.processes()
	if err != nil {
		return err
	}
	if err := end(before.server(number), how); err != nil {
		return err
	}
	if err := wait("another server runs", func() error {
		now, err := f.processes()
		if err == nil && now.server(number) == before.server(number) {
			err = errors.New("it is the same")
		}
		return err
	}); err != nil || f.servers == 1 {
		return err
	}
	return wait("all servers take part", f.takePart)
}

func end(pid int, how syscall.Signal) error {
	if pid < 2 {
		return fmt.Errorf("the cluster names process %d", pid)
	}
	return syscall.Kill(pid, how)
}

func (f *fleet) kubectl(program string, args ...string) (string, error) {
	with := []string{"kubectl", "--kubeconfig", filepath.Join(f.dir, "kubeconfig"), "--request-timeout=30s"}
	cmd := exec.Command(program, append(with, args...)...)
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, errOut.String())
	}
	return out.String(), nil
}

func (f *fleet) apply(manifest string) error {
	path := filepath.Join(filepath.Dir(f.program), "daemon.yaml")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		return err
	}
	_, err := f.kubectl(f.new, "apply", "-f", path)
	return err
}

func wait(what string, check func() error) (err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err = check(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s: not after %v: %w", what, patience, err)
}

// keepLogs copies what the servers have logged.
func (f *fleet) keepLogs(to string) error {
	logs, err := filepath.Glob(filepath.Join(f.dir, "logs", "*.log"))
	if err == nil {
		err = os.MkdirAll(to, 0o755)
	}
	if err != nil {
		return err
	}
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(log)), content, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
