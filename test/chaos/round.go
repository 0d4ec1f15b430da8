package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/test/chaos/author"
	"github.com/everynode/everynode/test/chaos/buffer"
	"github.com/everynode/everynode/test/chaos/copies"
	"github.com/everynode/everynode/test/chaos/counts"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/digests"
	"github.com/everynode/everynode/test/chaos/history/gates"
	"github.com/everynode/everynode/test/chaos/history/pulls"
	"github.com/everynode/everynode/test/chaos/history/variants"
	"github.com/everynode/everynode/test/chaos/plan"
	"github.com/everynode/everynode/test/chaos/tailor"
)

// patience bounds every wait; only what is wrong ever takes it.
const patience = 2 * time.Minute

// processEvery is how often a round is played on the real process.
const processEvery = 4

// cluster is a control plane that things are done to.
type cluster interface {
	// api and own return clients, of Kubernetes' kinds and of Everynode's own; they are
	// others after a restart.
	api() kubernetes.Interface
	own() *everynode.Client
	// addNode and removeNode start and stop the machine of a node; the node's
	// object is a matter of the API.
	addNode(back string) string
	removeNode(name string)
	// strike does one thing that goes wrong, to its end.
	strike(ctx context.Context, s plan.Step)
	// heal ends everything that goes wrong.
	heal(ctx context.Context) error
	// faults is how many writes, reads and events were tampered with.
	faults() int
	// finish stops the cluster and puts its history into the journal, abandon
	// just stops it.
	finish(ctx context.Context) error
	abandon()
}

// options say how rounds are played.
type options struct {
	binary   string
	policies which
	trouble  plan.Trouble // of rounds with policies; "" for any
	varying  plan.Varying
	length   time.Duration
	keep     string // where logs of bad rounds go
	all      bool   // report of good rounds too
}

// which says in which rounds changes follow RolloutPolicies.
type which string

// The choices: in every other round, in all, in none.
const (
	mixed which = "mixed"
	all   which = "all"
	none  which = "none"
)

// in reports whether they do in the round of a seed. Of two rounds on the real process
// one is with policies.
func (w which) in(seed uint64) bool {
	if seed%processEvery == 0 {
		seed /= processEvery
	}
	return w == all || w == mixed && seed%2 == 1
}

// outcome is what became of a round.
type outcome struct {
	seed           uint64
	kind           plan.Kind
	policies       bool
	trouble        plan.Trouble
	reads          plan.Reads
	varied, byPods bool
	faults, writes int
	events         int
	counts         counts.Counts
	took, settling time.Duration
	violations     []history.Violation
	report         string
	err            error
}

func (o outcome) bad() bool { return o.err != nil || len(o.violations) > 0 }

func kindOf(seed uint64) plan.Kind {
	if seed%processEvery == 0 {
		return plan.Process
	}
	return plan.Parts
}

// play plays the round of a seed.
func play(ctx context.Context, seed uint64, o options) (out outcome) {
	begin := time.Now()
	out = outcome{seed: seed, kind: kindOf(seed), policies: o.policies.in(seed)}
	defer func() { out.took = time.Since(begin) }()
	dir, err := os.MkdirTemp("", "everynode-chaos-")
	if err != nil {
		out.err = err
		return out
	}
	defer os.RemoveAll(dir)
	log := &buffer.Shared{}
	ctx = klog.NewContext(ctx, textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(log), textlogger.Verbosity(3))))
	r := &round{options: o, dir: dir, log: log, seed: seed, plan: planned(seed, out, o), journal: newJournal()}
	out.trouble, out.reads, out.varied, out.byPods = r.plan.Trouble, r.plan.Reads, r.plan.Varied, r.plan.ByPods
	out.err = r.run(ctx)
	out.faults, out.writes, out.events, out.settling = r.journal.faults, len(r.journal.record.Writes), len(r.journal.record.Events), r.settling
	if r.cluster != nil {
		out.faults += r.cluster.faults()
	}
	if r.judged {
		found, pinned := digests.Check(r.journal.record)
		early, entered := gates.Check(r.journal.record)
		broken, fetched := history.Check(r.journal.record)
		unlike, pulled := pulls.Check(r.journal.record)
		out.counts = counts.Of(r.journal.record,
			counts.Counts{Pinned: pinned, Entered: entered, Fetched: fetched, Pulled: pulled})
		out.violations = slices.Concat(broken, variants.Check(r.journal.record), copies.Check(r.journal.record), found, early,
			unlike,
			copies.Secrecy(r.journal.record, author.Traces(), string(r.log.Bytes()), strings.Join(r.journal.lines, "\n")))
		for _, text := range unsettled(r.journal.record.Last(), r.settledAt, r.plan.Kind) {
			out.violations = append(out.violations, history.Violation{Rule: "settled", Message: text, Objects: r.journal.named(text)})
		}
	}
	if out.bad() || o.all && r.cluster != nil {
		out.report = r.report(out)
	}
	return out
}

// planned is what happens in the round.
func planned(seed uint64, out outcome, o options) plan.Plan {
	dice := rand.New(rand.NewPCG(seed, 0))
	p := plan.Make(dice, out.kind, out.policies, o.trouble, o.length)
	p.Vary(dice, o.length, o.varying)
	return p
}

// round is one round while it is played.
type round struct {
	options
	seed    uint64
	dir     string
	log     *buffer.Shared
	plan    plan.Plan
	journal *journal
	cluster cluster
	user    *user
	judged  bool
	// settledAt is when the fleet was as it should be, or patience ended.
	settledAt time.Time
	settling  time.Duration
}

func (r *round) run(ctx context.Context) (err error) {
	if r.plan.Kind == plan.Process {
		r.cluster, err = startProcess(ctx, r)
	} else {
		r.cluster, err = startParts(ctx, r)
	}
	if err != nil {
		r.cluster = nil
		return err
	}
	finished := false
	defer func() {
		if !finished {
			r.cluster.abandon()
		}
	}()
	r.user = newUser(r.cluster, r.journal, r.plan)
	for range r.plan.Nodes {
		r.cluster.addNode("")
	}
	if err := r.user.prepare(ctx); err != nil {
		return err
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	r.act(ctx)
	healed, err := r.mend(ctx)
	if err != nil {
		return err
	}
	settled := r.user.settle(ctx)
	r.settling = time.Since(healed)
	if settled == nil && r.plan.Varied {
		settled = r.user.tailor.Finish(ctx, r.finishing())
	}
	r.settledAt = time.Now()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	finished = true
	if err := r.cluster.finish(ctx); err != nil {
		return err
	}
	r.judged = true
	// What is not settled shows in the last state, which is judged anyway.
	if settled != nil && len(unsettled(r.journal.record.Last(), r.settledAt, r.plan.Kind)) == 0 {
		return fmt.Errorf("settled only after %v: %w", r.settling, settled)
	}
	return nil
}

// finishing is how the last changes are made.
func (r *round) finishing() *tailor.Finish {
	nodes := func() typed.NodeInterface { return r.cluster.api().CoreV1().Nodes() }
	apart := func() typed.ConfigMapInterface { return r.cluster.api().CoreV1().ConfigMaps("kube-system") }
	f := &tailor.Finish{Nodes: nodes, Apart: apart, Until: until, Settle: r.user.settle, Do: r.user.do,
		KillLast: r.seed%4 == 3}
	f.Rules, f.Last = r.plan.Last()
	if r.plan.Kind == plan.Parts && r.seed%2 == 1 {
		f.Kill = func(ctx context.Context) {
			sleep(ctx, time.Duration(r.seed%7)*20*time.Millisecond)
			r.cluster.strike(ctx, plan.Step{Op: plan.KillLoop, Loop: plan.Loops[0]})
		}
	}
	return f
}

// mend ends all faults and has users mend what they broke. It returns when the faults ended.
func (r *round) mend(ctx context.Context) (healed time.Time, err error) {
	if err := r.cluster.heal(ctx); err != nil {
		return healed, err
	}
	healed = time.Now()
	r.journal.note("all faults end")
	if r.plan.Policies {
		if err := r.user.say(ctx); err != nil {
			return healed, err
		}
	}
	if err := r.user.mend(ctx); err != nil {
		return healed, err
	}
	if r.plan.Kind != plan.Parts || r.plan.Trouble != plan.DeadNodes {
		return healed, nil
	}
	if err := r.user.reach(ctx); err != nil {
		return healed, err
	}
	return healed, r.cluster.heal(ctx)
}

// begin takes the first steps and waits until what they ask for is there.
func (r *round) begin(ctx context.Context) error {
	for _, s := range r.plan.First {
		r.user.do(ctx, s)
	}
	if len(r.plan.First) == 0 {
		return nil
	}
	if err := r.user.allComplete(ctx); err != nil {
		return err
	}
	r.journal.note("all rollouts are complete")
	return nil
}

// act takes the steps of the plan: what users do one after another, faults beside.
func (r *round) act(ctx context.Context) {
	var faults sync.WaitGroup
	start := time.Now()
	for _, s := range r.plan.Steps {
		sleep(ctx, s.At-time.Since(start))
		if ctx.Err() != nil {
			break
		}
		if s.Fault() {
			faults.Go(func() { r.cluster.strike(ctx, s) })
		} else {
			r.user.do(ctx, s)
		}
	}
	faults.Wait()
}

// unsettled says what is not yet as it should be. On the real process copies linger for longer than a round.
func unsettled(s history.State, now time.Time, k plan.Kind) []string {
	return slices.Concat(history.Unsettled(s, now), variants.Unsettled(s), copies.Unsettled(s, k == plan.Parts),
		pulls.Unsettled(s))
}

// report tells what happened in a bad round.
func (r *round) report(o outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d (%s): ", o.seed, o.kind)
	if o.err != nil {
		fmt.Fprintf(&b, "%v\n", o.err)
	}
	for _, v := range o.violations {
		fmt.Fprintf(&b, "VIOLATION: %s\n", v)
	}
	fmt.Fprintf(&b, "\ntimeline:\n  %s\n", strings.Join(r.journal.lines, "\n  "))
	var objects []types.UID
	for _, v := range o.violations {
		objects = append(objects, v.Objects...)
	}
	if lines := r.journal.about(objects); len(lines) > 0 {
		fmt.Fprintf(&b, "\nhistory of what is concerned:\n  %s\n", strings.Join(lines, "\n  "))
	}
	file := filepath.Join(r.keep, fmt.Sprintf("everynode-chaos-%d.log", o.seed))
	if err := os.WriteFile(file, r.log.Bytes(), 0o600); err == nil {
		fmt.Fprintf(&b, "\nlogs of the control plane: %s\n", file)
	}
	if p, ok := r.cluster.(*process); ok {
		kept := strings.TrimSuffix(file, ".log") + ".decisions"
		if err := os.Rename(p.recording(), kept); err == nil {
			fmt.Fprintf(&b, "what the DaemonSet controller decided since its last start: %s\n", kept)
		}
	}
	again := ""
	if r.policies != mixed {
		again = " POLICIES=" + string(r.policies)
	}
	if r.trouble != "" {
		again += fmt.Sprintf(" TROUBLE='%s'", r.trouble)
	}
	if r.varying != plan.Sometimes {
		again += " VARIANTS=" + string(r.varying)
	}
	fmt.Fprintf(&b, "to play it again: make chaos SEED=%d ROUNDS=1%s\n", o.seed, again)
	return b.String()
}

// final is an error that waiting does not mend.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// until tries something until it works.
func until(ctx context.Context, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		} else {
			err = last
		}
		if end := (final{}); errors.As(err, &end) || ctx.Err() != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		sleep(ctx, 20*time.Millisecond)
	}
}
