// Command chaos plays rounds in which users change DaemonSets, pods and nodes
// while the control plane is killed, paused, restarted, cut off and lied to, and
// judges afterwards, from the database's full history, whether what Everynode
// promises held all the way. `make chaos` runs it; CONTRIBUTING.md says how to
// read what it prints.
//
//	plan     what happens in a round: made from the round's seed; pure
//	faults   stands between a control loop and the API
//	history  judges the history; pure
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/everynode/everynode/test/chaos/memory"
	"github.com/everynode/everynode/test/chaos/plan"
)

func main() {
	seed := flag.Uint64("seed", 1, "the seed of the first round; the next ones have the next numbers")
	rounds := flag.Int("rounds", 20, "how many rounds")
	policies := flag.String(
		"policies", string(mixed), "in which rounds changes follow RolloutPolicies: mixed (every other one), all or none",
	)
	jobs := flag.Int("jobs", 1, "how many rounds at a time")
	varying := flag.String("variants", string(plan.Sometimes),
		"in which rounds there are DaemonSetVariants: mixed (half of them, by the seed), all or none")
	var o options
	trouble := flag.String("trouble", "", fmt.Sprintf("of rounds with policies, by the seed if none is said: one of %q", plan.Troubles))
	flag.StringVar(&o.binary, "binary", "bin/everynode", "the program for the rounds that kill a process")
	flag.DurationVar(&o.length, "length", 2500*time.Millisecond, "for how long things happen in a round")
	flag.BoolVar(&o.all, "v", false, "tell what happened in good rounds too")
	heap := flag.String("heap", "", "a folder for what is in memory when all rounds are over")
	flag.StringVar(&o.keep, "logs", os.TempDir(), "the folder for the logs of rounds with a violation")
	flag.Parse()
	o.policies, o.trouble = which(*policies), plan.Trouble(*trouble)
	if o.policies != mixed && o.policies != all && o.policies != none {
		fmt.Fprintf(os.Stderr, "-policies is %q, must be mixed, all or none\n", *policies)
		os.Exit(2)
	}
	o.varying = plan.Varying(*varying)
	if !slices.Contains([]plan.Varying{plan.Sometimes, plan.Always, plan.Never}, o.varying) {
		fmt.Fprintf(os.Stderr, "-variants is %q, must be mixed, all or none\n", *varying)
		os.Exit(2)
	}
	if o.trouble != "" && !slices.Contains(plan.Troubles, o.trouble) {
		fmt.Fprintf(os.Stderr, "-trouble is %q, must be one of %q\n", *trouble, plan.Troubles)
		os.Exit(2)
	}
	if err := os.MkdirAll(o.keep, 0o755); err != nil {
		fmt.Fprintf(os.Stderr, "-logs: %v\n", err)
		os.Exit(2)
	}
	quiet()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	bad := series(ctx, os.Stdout, *seed, *rounds, *jobs, o)
	if err := memory.Keep(*heap); err != nil {
		fmt.Fprintln(os.Stderr, err)
		bad++
	}
	if bad > 0 || ctx.Err() != nil {
		stop()
		os.Exit(1)
	}
}

// quiet sends the logs of libraries that have no round's logger to nowhere.
func quiet() {
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
}

// series plays rounds, some at a time, tells how each went, and returns how many
// were bad.
func series(ctx context.Context, out io.Writer, first uint64, rounds, jobs int, o options) (bad int) {
	start := time.Now()
	var (
		sum     outcome
		mu      sync.Mutex
		workers sync.WaitGroup
		played  int
		kinds   = map[string]int{}
	)
	seeds := make(chan uint64)
	for range jobs {
		workers.Go(func() {
			for seed := range seeds {
				r := play(ctx, seed, o)
				mu.Lock()
				if ctx.Err() == nil {
					played++
					kinds[r.sort()]++
					tell(out, played, rounds, r)
					sum.faults, sum.writes, sum.events = sum.faults+r.faults, sum.writes+r.writes, sum.events+r.events
					sum.counts.Add(r.counts)
					if r.bad() {
						bad++
					}
				}
				mu.Unlock()
			}
		})
	}
	for i := range rounds {
		select {
		case seeds <- first + uint64(i):
		case <-ctx.Done():
		}
	}
	close(seeds)
	workers.Wait()
	fmt.Fprintf(out, "\n%d rounds, %d with violations; %d faults, %d writes of users, %d changes judged, in %.0f s\n",
		played, bad, sum.faults, sum.writes, sum.events, time.Since(start).Seconds())
	sum.counts.Tell(out)
	for _, sort := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(out, "%4d of %s\n", kinds[sort], sort)
	}
	return bad
}

// sort is what kind of round it was.
func (o outcome) sort() string {
	if o.byPods {
		o.byPods = false
		return o.sort() + ", fetched by pods"
	}
	if o.varied {
		o.varied = false
		return o.sort() + ", variants"
	}
	if !o.policies {
		return string(o.kind)
	}
	if o.reads != "" {
		return string(o.kind) + ", " + string(o.trouble) + ", " + string(o.reads)
	}
	return string(o.kind) + ", policies, " + string(o.trouble)
}

func tell(out io.Writer, number, rounds int, r outcome) {
	verdict := "ok"
	if r.bad() {
		verdict = "VIOLATION"
	}
	fmt.Fprintf(
		out,
		"round %3d/%d  seed %-6d %-31s %4d faults  %3d writes  %5d changes  %5.1f s (settled after %.1f s)  %s\n",
		number, rounds, r.seed, r.sort(), r.faults, r.writes, r.events, r.took.Seconds(), r.settling.Seconds(), verdict,
	)
	if r.report != "" {
		fmt.Fprintf(out, "\n%s\n", r.report)
	}
}
