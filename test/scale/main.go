// Command scale measures a control plane with simulated nodes: how long a
// DaemonSet takes to be created, updated and deleted on all of them, and how
// much memory that needs. `make bench` runs it on bin/everynode.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.binary, "binary", "bin/everynode", "the program to measure")
	sizes := flag.String("nodes", "1000", "numbers of simulated nodes, separated by commas")
	flag.IntVar(&o.sets, "daemonsets", 1, "how many DaemonSets are created; the first of them is updated and deleted")
	flag.StringVar(&o.unavailable, "max-unavailable", "10%", "maxUnavailable of the rolling update")
	flag.DurationVar(&o.idle, "idle", time.Minute, "for how long nothing happens after the update, to see what that costs")
	flag.DurationVar(&o.patience, "patience", 15*time.Minute, "how long a phase may take")
	flag.StringVar(
		&o.profiles, "profile", "",
		"a folder for profiles of the server, by phase: processor time in pieces of seconds, the heap and the metrics after "+
			"it; memory and times are then other ones",
	)
	var m modes
	agents := flag.String(
		"agents", "", "numbers of agents with connections of their own, in place of simulated nodes, separated by commas",
	)
	flag.IntVar(
		&m.greedy, "greedy", 0,
		"how many clients list all pods and create objects without a pause, while there is a rollout; it may take twice as "+
			"long, and no node may turn not ready",
	)
	flag.BoolVar(&m.several, "several", false, "compare one server with three, on one number of nodes")
	flag.BoolVar(
		&m.restore, "restore", false, "save the control plane, lose it, and restore it; it may be away for a minute",
	)
	flag.BoolVar(
		&m.policy, "policy", false,
		"compare rollouts without a policy, under one that asks for no pauses, and with content; they may take 1.3 "+
			"times as long, and 1.1 times that",
	)
	flag.BoolVar(
		&m.content, "content", false,
		"edit a ConfigMap that is content to what does not work; it may reach three nodes, which are to be back in a minute",
	)
	flag.BoolVar(
		&m.startup, "startup", false,
		"have nodes join that open when their daemons are available, without kills and with them; 99 in 100 may take half a "+
			"second",
	)
	flag.IntVar(&m.rate, "rate", 200, "how many nodes join a second, with -startup")
	flag.IntVar(&m.kills, "kills", 4, "how often the server is killed in the second run of -startup; 0 for no such run")
	flag.Uint64Var(&m.seed, "seed", 1, "says when the server is killed")
	flag.IntVar(&m.runs, "runs", 1, "how often they are compared")
	flag.StringVar(&m.before, "before", "", "another program whose three servers are compared as well")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	nodes, err := numbers(*sizes)
	if err == nil && *agents != "" {
		m.agents = true
		nodes, err = numbers(*agents)
	}
	if err == nil {
		err = m.run(ctx, o, nodes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		stop()
		os.Exit(1)
	}
}

// modes say what is measured; none is the phases of a DaemonSet's life.
type modes struct {
	agents, several, restore, policy, content, startup bool
	greedy, runs, rate, kills                          int
	seed                                               uint64
	before                                             string
}

func (m modes) valid(o options) bool {
	return o.sets >= 1 && o.idle >= 0 && o.patience > 0 && m.greedy >= 0 && m.runs >= 1 && m.rate >= 1 && m.kills >= 0
}

func (m modes) run(ctx context.Context, o options, nodes []int) error {
	if !m.valid(o) {
		return errors.New("there is at least one DaemonSet, one run and a node a second, and no other number is below 0")
	}
	switch {
	case m.several && len(nodes) > 1:
		return errors.New("one server is compared with three on one number of nodes")
	case m.several:
		o.nodes = nodes[0]
		return runSeveral(ctx, o, m.runs, m.before)
	case m.agents:
		return runAgents(ctx, o, nodes)
	case m.restore:
		return runRestore(ctx, o, nodes)
	case m.policy:
		return runPolicy(ctx, o, nodes, m.runs)
	case m.content:
		return runContent(ctx, o, nodes)
	case m.startup:
		return runStartup(ctx, o, nodes, m.rate, m.kills, m.seed)
	case m.greedy > 0:
		return runGreedy(ctx, o, nodes, m.greedy)
	}
	return runQuiet(ctx, o, nodes)
}

func numbers(sizes string) (nodes []int, err error) {
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a number of nodes", text)
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func runQuiet(ctx context.Context, o options, nodes []int) error {
	fmt.Println(machine())
	fmt.Printf(
		"\nDaemonSets: %d, of which one is updated and deleted; pods ready at once, maxUnavailable %s; seconds by the "+
			"clock / seconds of the server's CPU time.\n",
		o.sets, o.unavailable,
	)
	fmt.Printf(
		"Waits of nodes are seconds from when a pod is wanted until it is seen to be available: of half of the nodes / of "+
			"99 in 100, at most.\nAllocated is garbage and all, and how often the heap was collected meanwhile, in create, "+
			"update and delete.\nIdle and settled: nothing happens for %v, which begins %v after the update.\n\n",
		o.idle, aftermath,
	)
	fmt.Println(
		"| nodes | nodes ready | create | update | delete | waits, create | waits, update | peak memory | settled | CPU of " +
			"the three | allocated | CPU in all | written | idle, of a core | idle, written a minute |",
	)
	fmt.Println(
		"|------:|------------:|-------:|-------:|-------:|--------------:|--------------:|------------:|--------:" +
			"|-----------------:|----------:|-----------:|--------:|----------------:|-----------------------:|",
	)
	for _, o.nodes = range nodes {
		r, err := measure(ctx, o)
		if err != nil {
			return fmt.Errorf("measure %d nodes: %w", o.nodes, err)
		}
		waits := func(p phase) string { return fmt.Sprintf("%.1f / %.1f", p.half.Seconds(), p.most.Seconds()) }
		idle, idleWritten := "-", "-"
		if o.idle > 0 {
			idle = fmt.Sprintf("%.1f %%", 100*r.rest.core())
			idleWritten = fmt.Sprintf("%.1f MB", float64(r.rest.written)/r.rest.took.Minutes()/(1<<20))
		}
		fmt.Printf("| %d | %s | %s | %s | %s | %s | %s | %d MB | %d MB | %.1f s | %s, %s, %s | %.0f s | %d MB | %s | %s |\n",
			o.nodes, r.ready, r.create, r.update, r.remove, waits(r.create), waits(r.update), r.whole.Peak>>20, r.settled>>20,
			(r.create.cpu + r.update.cpu + r.remove.cpu).Seconds(), r.create.heap, r.update.heap, r.remove.heap,
			r.whole.CPU.Seconds(), r.whole.Written>>20, idle, idleWritten)
	}
	return nil
}

// mostSlowdown is how much longer a rollout may take among greedy clients.
const mostSlowdown = 2

func runGreedy(ctx context.Context, o options, nodes []int, clients int) error {
	fmt.Println(machine())
	fmt.Printf(
		"\nA rollout with maxUnavailable %s, alone and while %d clients list all pods and create objects; seconds by the "+
			"clock / seconds of the server's CPU time.\n\n",
		o.unavailable, clients,
	)
	fmt.Println("| nodes | alone | among greedy clients | slower | their lists | their objects | peak memory |")
	fmt.Println("|------:|------:|---------------------:|-------:|------------:|--------------:|------------:|")
	for _, o.nodes = range nodes {
		r, err := measureGreedy(ctx, o, clients)
		if err != nil {
			return fmt.Errorf("measure %d nodes among %d greedy clients: %w", o.nodes, clients, err)
		}
		slower := r.crowded.took.Seconds() / r.alone.took.Seconds()
		fmt.Printf(
			"| %d | %s | %s | %.1f times | %d | %d | %d MB |\n",
			o.nodes, r.alone, r.crowded, slower, r.lists, r.creates, r.peak>>20,
		)
		if slower > mostSlowdown {
			return fmt.Errorf(
				"with %d nodes the rollout took %.1f times as long among greedy clients, more than %d",
				o.nodes, slower, mostSlowdown,
			)
		}
	}
	return nil
}
