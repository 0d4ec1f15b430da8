// Command density measures one node that runs many pods: how long they take to start, what the node's agent uses while
// nothing happens and while it is scraped, and how long pods take to come back when the node is switched off and on
// while there is no control plane. It starts a cluster of one real node with the program in bin/, and so needs root and
// containerd.
//
//	go run ./test/density [--pods 100] [--settle 3m] [--idle 3m] [--scrape 3m] [--switch 110] [--binary bin/everynode]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/everynode/everynode/internal/testenv/freeport"
)

// patience is how long pods may take. Only a failure takes that long.
const patience = 10 * time.Minute

// options say what is measured.
type options struct {
	binary               string
	pods, switched       int
	settle, idle, scrape time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.pods, "pods", 100, "how many pods")
	flag.DurationVar(
		&o.settle, "settle", 3*time.Minute, "how long to wait before that, for the agent gives memory back every two minutes",
	)
	flag.DurationVar(&o.idle, "idle", 3*time.Minute, "how long to watch the agent while nothing happens")
	flag.DurationVar(
		&o.scrape, "scrape", 3*time.Minute,
		"how long to watch it while its metrics of containers are read every 15 seconds; 0 to leave that out",
	)
	flag.IntVar(
		&o.switched, "switch", 110, "how many pods there are when the node is switched off and on; 0 to leave that out",
	)
	flag.StringVar(&o.binary, "binary", "bin/everynode", "the program to measure")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "density:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, o options) (err error) {
	binary, err := filepath.Abs(o.binary)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "everynode-density-")
	if err != nil {
		return err
	}
	c := cluster{binary: binary, dir: filepath.Join(dir, "data")}
	defer func() {
		// Also when the measurement was interrupted.
		out, downErr := exec.Command(binary, "down", "--data-dir", c.dir, "--purge").CombinedOutput()
		if downErr != nil {
			downErr = fmt.Errorf("stop the cluster: %w\n%s", downErr, out)
		}
		err = errors.Join(err, downErr, os.RemoveAll(dir))
	}()
	port, err := freeport.Take()
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(
		ctx, binary, "up", "--data-dir", c.dir, "--nodes", "1", "--api-port", strconv.Itoa(port), "--runtime", "containerd",
		"--detach",
	).CombinedOutput(); err != nil {
		return fmt.Errorf("start a cluster: %w\n%s", err, out)
	}
	took, err := c.start(ctx, 0, o.pods)
	if err != nil {
		return err
	}
	fmt.Printf("%d pods were ready after %.1f s.\n", o.pods, took.Seconds())
	if err := c.use(ctx, o); err != nil {
		return err
	}
	if o.switched == 0 {
		return nil
	}
	if o.switched > o.pods {
		if _, err := c.start(ctx, o.pods, o.switched); err != nil {
			return err
		}
	}
	return c.switchOffAndOn(ctx, max(o.switched, o.pods))
}

// use measures what the agent uses.
func (c cluster) use(ctx context.Context, o options) error {
	now, err := c.processes()
	if err != nil {
		return err
	}
	pid := now.Nodes[node].Agent.PID
	if _, _, err := watch(ctx, pid, o.settle); err != nil {
		return err
	}
	row := func(what string, most memory, spent, over time.Duration) {
		fmt.Printf(
			"| %s | %d | %d | %d | %.2f %% of a core |\n",
			what, most.resident>>20, most.anonymous>>20, most.share>>20, 100*spent.Seconds()/over.Seconds(),
		)
	}
	fmt.Printf(
		"\n| %d pods | agent's memory, MB | of that its own | its share | agent's CPU |\n|---|---:|---:|---:|---:|\n", o.pods,
	)
	most, spent, err := watch(ctx, pid, o.idle)
	if err != nil {
		return err
	}
	row("idle", most, spent, o.idle)
	if o.scrape == 0 {
		return nil
	}
	scraping := c.scrapeAgain(ctx)
	most, spent, err = watch(ctx, pid, o.scrape)
	if err != nil {
		return err
	}
	scrapes := scraping()
	row("scraped", most, spent, o.scrape)
	fmt.Printf("\n%s\n", scrapes)
	return scrapes.err
}
