package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/hollow/hollowagent"
	"github.com/everynode/everynode/test/scale/usage"
)

// joining is how many agents get their certificates at a time.
const joining = 16

// runAgents measures a server with agents in place of simulated nodes: each has a certificate, a connection, watches, a
// lease and statuses of its own, by the code of real agents, but no containers.
func runAgents(ctx context.Context, o options, counts []int) error {
	fmt.Println(machine())
	fmt.Printf(
		"\nAgents with connections of their own and no containers, in one process that measures, too. DaemonSets: %d, of "+
			"which one is updated and deleted, maxUnavailable %s; "+
			"seconds by the clock / seconds of the server's CPU time.\nIdle and settled: nothing happens for %v, which begins "+
			"%v after the update.\n\n",
		o.sets, o.unavailable, o.idle, aftermath,
	)
	fmt.Println(
		"| agents | connections | watches | nodes ready | create | update | delete | peak memory | settled | CPU in all | " +
			"of the agents | idle, of a core | idle, CPU s for each node and hour | idle, written a minute |",
	)
	fmt.Println(
		"|-------:|------------:|--------:|------------:|-------:|-------:|-------:|------------:|--------:|-----------:" +
			"|--------------:|----------------:|-----------------------------------:|-----------------------:|",
	)
	o.agents = true
	for _, o.nodes = range counts {
		before, err := usage.Of(os.Getpid())
		if err != nil {
			return err
		}
		r, err := measure(ctx, o)
		if err != nil {
			return fmt.Errorf("measure %d agents: %w", o.nodes, err)
		}
		after, err := usage.Of(os.Getpid())
		if err != nil {
			return err
		}
		fmt.Printf("| %d | %d | %d | %s | %s | %s | %s | %d MB | %d MB | %.0f s | %.0f s | %.1f %% | %.1f | %.1f MB |\n",
			o.nodes, r.connections, r.watches, r.ready, r.create, r.update, r.remove, r.whole.Peak>>20, r.settled>>20,
			r.whole.CPU.Seconds(),
			(after.CPU - before.CPU).Seconds(), 100*r.rest.core(), 3600*r.rest.core()/float64(o.nodes),
			float64(r.rest.written)/r.rest.took.Minutes()/(1<<20))
	}
	return nil
}

// startAgents has agents join until there are as many as nodes are wanted. What it returns ends them, and one that
// cannot go on ends the run through fail.
func (b *bench) startAgents(ctx context.Context, fail context.CancelCauseFunc) (stop func(), err error) {
	made, err := exec.CommandContext(ctx, b.binary, "token", "create", "--data-dir", filepath.Join(b.dir, "data")).Output()
	if err != nil {
		return nil, fmt.Errorf("make a token: %w", err)
	}
	log, err := os.Create(filepath.Join(b.dir, "agents.log"))
	if err != nil {
		return nil, err
	}
	flags := flag.NewFlagSet("log", flag.PanicOnError)
	klog.InitFlags(flags)
	_ = flags.Parse([]string{"-logtostderr=false", "-stderrthreshold=FATAL"}) // It would panic.
	klog.SetOutput(log)
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	turns := make(chan struct{}, joining)
	running.Go(func() {
		for i := range b.nodes {
			select {
			case <-ctx.Done():
				return
			case turns <- struct{}{}:
			}
			running.Go(func() {
				if err := b.agent(i, strings.TrimSpace(string(made)), func() { <-turns }).Run(ctx); err != nil {
					fail(fmt.Errorf("agent %d ended: %w; see %s", i, err, log.Name()))
				}
			})
		}
	})
	return func() {
		end()
		running.Wait()
		klog.Flush()
		klog.SetOutput(os.Stderr)
		_ = log.Close()
	}, nil
}

func (b *bench) agent(i int, token string, joined func()) hollowagent.Agent {
	name := fmt.Sprintf("agent-%04d", i+1)
	return hollowagent.Agent{Joined: joined, Config: config.Config{
		Node: config.Node{
			Server: "https://127.0.0.1:" + strconv.Itoa(b.port), Token: token, NodeName: name, Version: "v0.0.0",
			// From a range that is reserved for networks inside a provider; nobody calls there.
			NodeIPs: []net.IP{net.IPv4(100, byte(64+(i+1)>>16), byte((i+1)>>8), byte(i+1))},
		},
		Folders: config.Folders{DataDir: filepath.Join(b.dir, "agents", name), MemoryDir: filepath.Join(b.dir, "memory")},
	}}
}

// watches is how many watches the server serves.
func (b *bench) watches(ctx context.Context) (int, error) {
	data, err := b.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("count the watches: %w", err)
	}
	var sum float64
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, "apiserver_longrunning_requests{")
		if !ok || !strings.Contains(rest, `verb="WATCH"`) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, '}')+1:]), 64)
		if err != nil {
			return 0, fmt.Errorf("count the watches: %w", err)
		}
		sum += n
	}
	return int(sum), nil
}

// connections is how many connections lead to the server's port.
func (b *bench) connections() (n int, err error) {
	const established = "01"
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(path)
		if err != nil {
			return 0, fmt.Errorf("count the connections: %w", err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			// Its number, its own address, the other one, its state.
			fields := strings.Fields(lines.Text())
			if len(fields) > 3 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", b.port)) && fields[3] == established {
				n++
			}
		}
	}
	return n, nil
}
