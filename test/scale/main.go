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
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *binary, *sizes, *unavailable); err != nil {
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
