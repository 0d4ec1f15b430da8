// Command several plays rounds in which three servers, each in a network namespace of its
// own and its data on a small disk of its own, are killed, stopped, cut off from each other,
// both ways or one way, and left without room, while clients write through each of them. A
// server whose disk is full must say so, and take part again once there is room. Afterwards
// every write that was acknowledged must be on every server, and every server must have the
// same; and a list that is asked for after an acknowledgement must have it. Clients that watch, and go on at another
// server each time that a watch ends, must be told of every change, once and in order. A server that is cut off must
// end the watches of those on its own machine. Servers are also removed, and join again. `make chaos-servers` runs it;
// it needs root.
//
// With -machines each server has an emulated machine: its clock jumps by hours, and its disk takes
// a few writes a second. `make chaos-machines` runs that; it needs QEMU, and no root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/test/emulated"
)

func main() {
	seed := flag.Uint64("seed", 1, "the seed of the first round; the next ones have the next numbers")
	rounds := flag.Int("rounds", 10, "how many rounds")
	binary := flag.String("binary", "bin/everynode", "the program")
	length := flag.Duration("length", 15*time.Second, "for how long things happen in a round")
	faults := flag.String("faults", "", "only faults with this in their names, such as \"disk\"")
	machines := flag.Bool(
		"machines", false, "servers in emulated machines of their own, whose clocks jump and whose disks are slow",
	)
	kernel := flag.String("kernel", "", "with -machines: a folder that hack/emulated-kernel.sh has filled")
	verbose := flag.Bool("v", false, "tell what happened in good rounds, too")
	keep := flag.Bool("keep", false, "end with the first violation, and leave the cluster as it is")
	flag.Parse()
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *machines && !emulated.Available() {
		fmt.Println("chaos-servers: skipped: there is no QEMU here; install qemu-system-x86")
		return
	}
	bad, err := series(ctx, plan{
		binary:   *binary,
		first:    *seed,
		rounds:   *rounds,
		length:   *length,
		faults:   *faults,
		keep:     *keep,
		machines: *machines,
		verbose:  *verbose,
		kernel:   *kernel,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos-servers:", err)
	}
	if bad > 0 || err != nil {
		stop()
		os.Exit(1)
	}
}

// plan is what is played.
type plan struct {
	binary, faults string
	first          uint64
	rounds         int
	length         time.Duration
	kernel         string

	keep, machines, verbose bool
}

// series plays rounds on one cluster, which it makes and takes away.
func series(ctx context.Context, p plan) (bad int, err error) {
	binary, err := filepath.Abs(p.binary)
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "everynode-chaos-servers-")
	if err != nil {
		return 0, err
	}
	var c *cluster
	if p.machines {
		patience = 15 * time.Minute
		c, err = emulate(ctx, binary, p.kernel, dir)
	} else {
		c, err = start(ctx, binary, filepath.Join(dir, "cluster"))
	}
	defer func() {
		if p.keep && bad > 0 {
			fmt.Println("The cluster is left as it is, in", dir)
			return
		}
		c.heal()
		err = errors.Join(err, c.remove(), os.RemoveAll(dir))
	}()
	if err != nil {
		return 0, err
	}
	c.faults = p.faults
	begin, sum := time.Now(), outcome{}
	for i := range p.rounds {
		if ctx.Err() != nil {
			return bad, ctx.Err()
		}
		seed := p.first + uint64(i)
		out := c.play(ctx, rand.New(rand.NewPCG(seed, 0)), seed, p.length)
		verdict := "ok"
		if len(out.violations) > 0 {
			bad++
			verdict = "VIOLATION"
		}
		fmt.Printf(
			"round %2d/%d  seed %-5d %2d faults (%d of full disks)  %4d writes acknowledged, %4d without an answer, %4d "+
				"reads, %5d events  whole after %4.1f s  %s\n",
			i+1, p.rounds, seed, out.faults, out.full, out.acknowledged, out.unknown, out.reads, out.events,
			out.healing.Seconds(), verdict,
		)
		c.tell(out, p.verbose)
		if len(out.violations) > 0 && p.keep {
			return bad, nil
		}
		sum.reads += out.reads
		sum.events += out.events
		sum.faults, sum.full, sum.acknowledged, sum.unknown = sum.faults+
			out.faults, sum.full+out.full, sum.acknowledged+out.acknowledged, sum.unknown+out.unknown
	}
	fmt.Printf(
		"\n%d rounds, %d with violations; %d faults (%d servers ended of full disks), %d writes acknowledged, %d without "+
			"an answer, %d reads, %d events, in %.0f s\n",
		p.rounds, bad, sum.faults, sum.full, sum.acknowledged, sum.unknown, sum.reads, sum.events,
		time.Since(begin).Seconds(),
	)
	return bad, nil
}

// tell prints what was wrong in a round, and what happened in it.
func (c *cluster) tell(out outcome, verbose bool) {
	for _, v := range out.violations {
		fmt.Println("  VIOLATION:", v)
	}
	if len(out.violations) > 0 || verbose {
		for _, line := range out.timeline {
			fmt.Println("   ", line)
		}
	}
	if len(out.violations) > 0 {
		for _, s := range c.servers {
			fmt.Printf("    %s: %s\n", s.name, c.said(s.name))
		}
	}
}
