package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	restclient "k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/everynode/everynode/test/chaos/history/gates"
	"github.com/everynode/everynode/test/scale/opening"
	"github.com/everynode/everynode/test/scale/usage"
)

// What is promised of nodes that start: how long 99 in 100 may stay closed after their last daemon has become available
// where nobody is killed, and how long any of them where servers are, of the time in which there is one.
const (
	mostClosed     = 500 * time.Millisecond
	mostAfterKills = 30 * time.Second
)

// runStartup has nodes join that start daemons first, without kills and with them.
func runStartup(ctx context.Context, o options, nodes []int, rate, kills int, seed uint64) error {
	klog.SetLogger(logr.Discard()) // of nodes whose server is killed
	ctrllog.SetLogger(logr.Discard())
	fmt.Println(machine())
	fmt.Printf(
		"\n%d nodes join a second, and twice as many pods wait for them. Each node starts two daemons, one after the other, "+
			"and is open then.\nSeconds by the clock; of those in which nodes were closed after their last daemon had become "+
			"available: half / 99 in 100 / all, at most.\nServed: while there was a server. Nodes are simulated in the process "+
			"that measures.\nCPU: ms for each node, of the server / of that process. Seed: %d\n\n",
		rate, seed,
	)
	fmt.Println("| nodes | kills | joined in | open after | closed | closed, served | pods placed | too early | CPU, ms |")
	fmt.Println("|------:|------:|----------:|-----------:|-------:|---------------:|------------:|----------:|----:|")
	// Simulated nodes are not the server's own here.
	o.agents, o.more = true, []string{"--cluster-cidr", "10.128.0.0/9", "--node-cidr-mask-size", "25"}
	var errs []error
	for _, o.nodes = range nodes {
		for _, k := range []int{0, kills} {
			err := o.open(ctx, opening.Options{Nodes: o.nodes, Rate: rate, Kills: k, Seed: seed, Patience: o.patience})
			if err != nil {
				errs = append(errs, fmt.Errorf("open %d nodes with %d kills: %w", o.nodes, k, err))
			}
			if kills == 0 {
				break
			}
		}
	}
	return errors.Join(errs...)
}

// open does one run.
func (o options) open(ctx context.Context, run opening.Options) error {
	b, cleanUp, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer cleanUp()
	run.Server = opened{b}
	b.profiles = o.profiles
	if run.Kills > 0 {
		b.profiles = "" // nobody answers for them
	}
	var before, after costs
	run.Begins = func() (err error) {
		b.settle()
		before, err = b.costs()
		return err
	}
	var h gates.History
	err = b.profiled(ctx, "startup", func(ctx context.Context) (err error) {
		h, err = opening.Run(ctx, run)
		return err
	})
	if err != nil {
		return err
	}
	after, err = b.costs()
	if err != nil {
		return err
	}
	j, early := gates.Judge(h), gates.Early(gates.InOrder(h.Writes))
	fmt.Printf("| %d | %d | %.1f | %.1f | %s | %s | %d | %d | %s |\n", j.Nodes, run.Kills, j.Joining.Seconds(),
		j.All.Seconds(), shares(j.Waits), shares(j.Served), j.Bound, len(early), after.since(before, run))
	var errs []error
	for _, f := range j.Faults {
		errs = append(errs, errors.New(f.String()))
	}
	if j.Nodes != run.Nodes || j.Bound != 2*run.Nodes {
		errs = append(errs, fmt.Errorf("%d nodes joined, and %d pods have one", j.Nodes, j.Bound))
	}
	if run.Kills == 0 && gates.Of100(j.Waits, 99) > mostClosed {
		errs = append(errs, fmt.Errorf("of 99 in 100 nodes one stayed closed for more than %v", mostClosed))
	}
	if gates.Of100(j.Served, 100) > mostAfterKills {
		errs = append(errs, fmt.Errorf("one stayed closed for more than %v", mostAfterKills))
	}
	return errors.Join(errs...)
}

// costs is processor time: of the server, and of this process, in which nodes are simulated and all is recorded.
type costs struct{ server, nodes time.Duration }

func (b *bench) costs() (c costs, err error) {
	server, _, err := b.used()
	if err != nil {
		return c, err
	}
	own, err := usage.Of(os.Getpid())
	return costs{server.CPU, own.CPU}, err
}

// since is what each of the nodes has cost; of servers that were killed nobody knows it.
func (c costs) since(before costs, run opening.Options) string {
	if run.Kills > 0 {
		return "-"
	}
	each := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(run.Nodes) }
	return fmt.Sprintf("%.1f / %.1f", each(c.server-before.server), each(c.nodes-before.nodes))
}

// shares are the times of half, of 99 in 100 and of all.
func shares(waits []time.Duration) string {
	return fmt.Sprintf("%.2f / %.2f / %.2f", gates.Of100(waits, 50).Seconds(), gates.Of100(waits, 99).Seconds(),
		gates.Of100(waits, 100).Seconds())
}

// opened is the bench's server.
type opened struct{ b *bench }

// Config implements opening.Server.
func (s opened) Config() *restclient.Config { return s.b.config }

// Database implements opening.Server.
func (s opened) Database() string { return filepath.Join(s.b.dir, "data", "etcd") }

// Kill implements opening.Server.
func (s opened) Kill() {
	_ = s.b.server.Process.Kill() // it may have ended
	s.b.ended <- <-s.b.ended
}

// Start implements opening.Server.
func (s opened) Start(ctx context.Context) error { return s.b.start(ctx) }
