// Command scale measures a control plane with simulated nodes: how long a
// DaemonSet takes to be created, updated and deleted on all of them, and how
// much memory that needs. `make bench` runs it on bin/everynode.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	binary := flag.String("binary", "bin/everynode", "the program to measure")
	sizes := flag.String("nodes", "1000", "numbers of simulated nodes, separated by commas")
	unavailable := flag.String("max-unavailable", "10%", "maxUnavailable of the rolling update")
	greedy := flag.Int("greedy", 0, "how many clients list all pods and create objects without a pause, while there is a rollout; it may take twice as long, and no node may turn not ready")
	several := flag.Bool("several", false, "compare one server with three, on one number of nodes")
	runs := flag.Int("runs", 1, "how often they are compared")
	before := flag.String("before", "", "another program whose three servers are compared as well")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	measured := run
	if *greedy > 0 {
		measured = func(ctx context.Context, binary, sizes, unavailable string) error {
			return runGreedy(ctx, options{binary: binary, unavailable: unavailable}, sizes, *greedy)
		}
	}
	if *several {
		measured = func(ctx context.Context, binary, sizes, unavailable string) error {
			nodes, err := strconv.Atoi(sizes)
			if err != nil || nodes < 1 {
				return fmt.Errorf("%q is not a number of nodes", sizes)
			}
			return runSeveral(ctx, options{binary: binary, nodes: nodes, unavailable: unavailable}, *runs, *before)
		}
	}
	if err := measured(ctx, *binary, *sizes, *unavailable); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, binary, sizes, unavailable string) error {
	fmt.Println(machine())
	fmt.Printf("\nOne DaemonSet, pods ready at once, maxUnavailable %s; seconds by the clock / seconds of the server's CPU time.\n\n", unavailable)
	fmt.Println("| nodes | nodes ready | create | update | delete | peak memory | CPU |")
	fmt.Println("|------:|------------:|-------:|-------:|-------:|------------:|----:|")
	for text := range strings.SplitSeq(sizes, ",") {
		nodes, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || nodes < 1 {
			return fmt.Errorf("%q is not a number of nodes", text)
		}
		r, err := measure(ctx, options{binary: binary, nodes: nodes, unavailable: unavailable})
		if err != nil {
			return fmt.Errorf("measure %d nodes: %w", nodes, err)
		}
		fmt.Printf("| %d | %s | %s | %s | %s | %d MB | %.0f s |\n", nodes, r.ready, r.create, r.update, r.remove, r.peak>>20, r.cpu.Seconds())
	}
	return nil
}

// mostSlowdown is how much longer a rollout may take among greedy clients.
const mostSlowdown = 2

func runGreedy(ctx context.Context, o options, sizes string, clients int) error {
	fmt.Println(machine())
	fmt.Printf("\nA rollout with maxUnavailable %s, alone and while %d clients list all pods and create objects; seconds by the clock / seconds of the server's CPU time.\n\n", o.unavailable, clients)
	fmt.Println("| nodes | alone | among greedy clients | slower | their lists | their objects | peak memory |")
	fmt.Println("|------:|------:|---------------------:|-------:|------------:|--------------:|------------:|")
	for text := range strings.SplitSeq(sizes, ",") {
		var err error
		if o.nodes, err = strconv.Atoi(strings.TrimSpace(text)); err != nil || o.nodes < 1 {
			return fmt.Errorf("%q is not a number of nodes", text)
		}
		r, err := measureGreedy(ctx, o, clients)
		if err != nil {
			return fmt.Errorf("measure %d nodes among %d greedy clients: %w", o.nodes, clients, err)
		}
		slower := r.crowded.took.Seconds() / r.alone.took.Seconds()
		fmt.Printf("| %d | %s | %s | %.1f times | %d | %d | %d MB |\n", o.nodes, r.alone, r.crowded, slower, r.lists, r.creates, r.peak>>20)
		if slower > mostSlowdown {
			return fmt.Errorf("with %d nodes the rollout took %.1f times as long among greedy clients, more than %d", o.nodes, slower, mostSlowdown)
		}
	}
	return nil
}
