package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mostRestored is how long it may take from the loss of a control plane until the restored one has
// heard of every node.
const mostRestored = time.Minute

// restoration is what it took to save a control plane, and to have it back.
type restoration struct {
	database, file int64
	save, restore  time.Duration
	// answers is from the start of the restored server until it answers, and heard until it has
	// heard of every node.
	answers, heard time.Duration
}

func runRestore(ctx context.Context, o options, nodes []int) error {
	fmt.Println(machine())
	fmt.Printf(
		"\nA control plane with %d DaemonSets on all nodes is saved, lost and restored; seconds by the clock, after the "+
			"start of the restored server for the last two.\n\n",
		o.sets,
	)
	fmt.Println(
		"| nodes | pods | database | backup | saved in | restored in | API answers | every node heard of | lost for |",
	)
	fmt.Println(
		"|------:|-----:|---------:|-------:|---------:|------------:|------------:|--------------------:|---------:|",
	)
	for _, o.nodes = range nodes {
		r, err := measureRestore(ctx, o)
		if err != nil {
			return fmt.Errorf("restore %d nodes: %w", o.nodes, err)
		}
		lost := r.restore + r.heard
		fmt.Printf(
			"| %d | %d | %.1f MB | %.1f MB | %.1f | %.1f | %.1f | %.1f | %.1f |\n",
			o.nodes, o.nodes*o.sets, megabytes(r.database), megabytes(r.file),
			r.save.Seconds(), r.restore.Seconds(), r.answers.Seconds(), r.heard.Seconds(), lost.Seconds(),
		)
		if lost > mostRestored {
			return fmt.Errorf(
				"with %d nodes it took %v to have the control plane back, more than %v", o.nodes, lost, mostRestored,
			)
		}
	}
	return nil
}

func megabytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func measureRestore(ctx context.Context, o options) (r restoration, err error) {
	b, cleanUp, err := newBench(ctx, o)
	if err != nil {
		return r, err
	}
	defer cleanUp()
	if err := b.nodesReady(ctx); err != nil {
		return r, err
	}
	if err := b.create(ctx); err != nil {
		return r, err
	}
	before, err := b.daemons(ctx)
	if err != nil {
		return r, err
	}
	key, file, data := filepath.Join(b.dir, "key"), filepath.Join(b.dir, "backup"), filepath.Join(b.dir, "data")
	if _, err := b.run(ctx, "backup", "key", key); err != nil {
		return r, err
	}
	r.save, err = b.run(ctx, "backup", "save", file, "--key-file", key, "--data-dir", data)
	if err != nil {
		return r, err
	}
	r.file, err = sizeOf(file)
	if err != nil {
		return r, err
	}
	b.stop()
	r.database, err = sizeOf(filepath.Join(data, "etcd", "member", "snap", "db"))
	if err != nil {
		return r, err
	}
	if err := os.RemoveAll(data); err != nil {
		return r, err
	}
	r.restore, err = b.run(ctx, "backup", "restore", file, "--key-file", key, "--data-dir", data)
	if err != nil {
		return r, err
	}
	begin := time.Now()
	if err := b.start(ctx); err != nil {
		return r, err
	}
	r.answers = time.Since(begin)
	if err := b.until(ctx, "all nodes to be heard of", func(ctx context.Context) (bool, error) {
		return b.heardSince(ctx, begin)
	}); err != nil {
		return r, err
	}
	r.heard = time.Since(begin)
	return r, b.same(ctx, before)
}

// run has the program do something, and says how long that took.
func (b *bench) run(ctx context.Context, args ...string) (took time.Duration, err error) {
	begin := time.Now()
	if out, err := exec.CommandContext(ctx, b.binary, args...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("everynode %v: %w: %s", args, err, out)
	}
	return time.Since(begin), nil
}

func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// heardSince reports whether every node has renewed its Lease since then.
func (b *bench) heardSince(ctx context.Context, then time.Time) (bool, error) {
	list, err := b.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, err
	}
	heard := 0
	for _, l := range list.Items {
		if l.Spec.RenewTime != nil && l.Spec.RenewTime.After(then) {
			heard++
		}
	}
	return heard == b.nodes, nil
}

// daemons are the pods, by UID, and how often their containers were started again.
func (b *bench) daemons(ctx context.Context) (map[string]int32, error) {
	list, err := b.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]int32{}
	for _, p := range list.Items {
		restarts := int32(0)
		for _, c := range p.Status.ContainerStatuses {
			restarts += c.RestartCount
		}
		out[string(p.UID)] = restarts
	}
	return out, nil
}

// same compares the pods with those of before: the DaemonSets are well, and nothing was replaced
// or started again.
func (b *bench) same(ctx context.Context, before map[string]int32) error {
	for i := range b.sets {
		if err := b.available(ctx, setName(i)); err != nil {
			return err
		}
	}
	after, err := b.daemons(ctx)
	if err != nil {
		return err
	}
	for uid, restarts := range before {
		if now, there := after[uid]; !there || now != restarts {
			return fmt.Errorf("the pod %s was replaced or started again", uid)
		}
	}
	if len(after) != len(before) {
		return fmt.Errorf("there were %d pods, and there are %d", len(before), len(after))
	}
	return nil
}
