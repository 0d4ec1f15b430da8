package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/test/scale/usage"
)

// plainStorage keeps the kinds that change often the library's way: none of them is
// encrypted, but they could be.
const plainStorage = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [pods, nodes, leases.coordination.k8s.io]
  providers:
  - identity: {}
  - secretbox: {keys: [{name: unused, secret: MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA=}]}
`

// contender is a control plane that is compared with others.
type contender struct {
	name    string
	binary  string
	servers int
	library bool
}

// runSeveral measures one server with the library's storage, one as it is, and three, one
// after another, as often as is wanted: what else the machine does then meets all of them.
func runSeveral(ctx context.Context, o options, runs int, before string) error {
	fmt.Println(machine())
	fmt.Printf(
		"\nOne DaemonSet on %d simulated nodes, pods ready at once, maxUnavailable %s; servers in processes of their own "+
			"on the loopback interface, all data on one disk.\n"+
			"Seconds by the clock / seconds of CPU time of all servers.\n\n",
		o.nodes, o.unavailable,
	)
	fmt.Println(
		"| servers | nodes ready | create | update | delete | the three | CPU in all, of each | peak memory of each |",
	)
	fmt.Println(
		"|:--------|------------:|-------:|-------:|-------:|----------:|--------------------:|--------------------:|",
	)
	all := []contender{
		{name: "1, library's storage", servers: 1, library: true},
		{name: "1", servers: 1},
		{name: "3", servers: 3},
	}
	if before != "" {
		all = append(all, contender{name: "3, before", servers: 3, binary: before})
	}
	for range runs {
		for _, c := range all {
			with := o
			with.servers, with.library, with.idle = c.servers, c.library, 0
			if c.binary != "" {
				with.binary = c.binary
			}
			r, err := measure(ctx, with)
			if err != nil {
				return fmt.Errorf("measure %s: %w", c.name, err)
			}
			var cpus, peaks []string
			for _, each := range r.each {
				cpus, peaks = append(cpus, fmt.Sprintf("%.0f", each.CPU.Seconds())), append(peaks, fmt.Sprint(each.Peak>>20))
			}
			three := phase{took: r.create.took + r.update.took + r.remove.took, cpu: r.create.cpu + r.update.cpu + r.remove.cpu}
			fmt.Printf(
				"| %s | %s | %s | %s | %s | %s | %.0f s (%s) | %s MB |\n", c.name, r.ready, r.create, r.update, r.remove, three,
				r.whole.CPU.Seconds(), strings.Join(cpus, ", "), strings.Join(peaks, ", "),
			)
		}
	}
	return nil
}

// follower is a server that has joined the first one.
type follower struct {
	cmd   *exec.Cmd
	ended chan error
}

// joinOthers starts the servers besides the first, one after another.
func (b *bench) joinOthers(ctx context.Context) error {
	for number := 2; number <= b.servers; number++ {
		if err := b.joinOne(ctx, number); err != nil {
			return fmt.Errorf("start server %d: %w", number, err)
		}
	}
	return nil
}

func (b *bench) joinOne(ctx context.Context, number int) error {
	dir := filepath.Join(b.dir, "server-"+strconv.Itoa(number))
	made, err := exec.CommandContext(
		ctx, b.binary, "token", "create", "--server", "--data-dir", filepath.Join(b.dir, "data"),
	).Output()
	if err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	log, err := os.Create(filepath.Join(b.dir, fmt.Sprintf("server-%d.log", number)))
	if err != nil {
		return err
	}
	defer log.Close()
	address := fmt.Sprintf("127.0.0.%d:%d", number, b.port)
	cmd := exec.Command(
		b.binary, "server", "--data-dir", dir, "--listen", address, "--server-name", "server-"+strconv.Itoa(number),
		"--simulated-nodes", strconv.Itoa(b.nodes), "--join", "https://127.0.0.1:"+strconv.Itoa(b.port),
	)
	cmd.Env = append(os.Environ(), "EVERYNODE_TOKEN="+strings.TrimSpace(string(made)))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	f := follower{cmd, make(chan error, 1)}
	go func() { f.ended <- cmd.Wait() }()
	b.followers = append(b.followers, f)
	return b.until(ctx, "the server", func(ctx context.Context) (bool, error) {
		select {
		case err := <-f.ended:
			f.ended <- err
			return false, fmt.Errorf("it ended: %w; see %s", err, log.Name())
		default:
		}
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return false, err
		}
		_, err = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		return err == nil, nil
	})
}

// pids are the processes of all servers.
func (b *bench) pids() []int {
	out := []int{b.server.Process.Pid}
	for _, f := range b.followers {
		out = append(out, f.cmd.Process.Pid)
	}
	return out
}

// used is what all servers have used so far, of memory the most of one, and what each has.
func (b *bench) used() (all usage.Usage, each []usage.Usage, err error) {
	for _, pid := range b.pids() {
		u, err := usage.Of(pid)
		if err != nil {
			return all, nil, err
		}
		all.CPU, all.Written = all.CPU+u.CPU, all.Written+u.Written
		all.Peak, all.Now = max(all.Peak, u.Peak), max(all.Now, u.Now)
		each = append(each, u)
	}
	return all, each, nil
}
