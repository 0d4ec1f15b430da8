package main

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
)

// mostByPolicy is how much longer a rollout may take under a policy that asks for no pauses.
const mostByPolicy = 1.3

// runPolicy compares rollouts with and without a policy that asks for no pauses, one after the other on one control
// plane: what else the machine does then meets both.
func runPolicy(ctx context.Context, o options, nodes []int, runs int) error {
	fmt.Println(machine())
	fmt.Printf(
		"\nRollouts with maxUnavailable %s, in turn without a policy and under one without pauses; seconds by the clock / "+
			"seconds of the server's CPU time.\n\n",
		o.unavailable,
	)
	fmt.Println("| nodes | without | under a policy | by the clock | CPU |")
	fmt.Println("|------:|--------:|---------------:|-------------:|----:|")
	for _, o.nodes = range nodes {
		clocks, cpus, err := measurePolicy(ctx, o, runs)
		if err != nil {
			return fmt.Errorf("measure %d nodes with and without a policy: %w", o.nodes, err)
		}
		clock, cpu := median(clocks), median(cpus)
		fmt.Printf("| %d | | median of %d | %.2f times | %.2f times |\n", o.nodes, runs, clock, cpu)
		if clock > mostByPolicy {
			return fmt.Errorf(
				"with %d nodes a rollout took %.2f times as long under a policy, more than %.1f", o.nodes, clock, mostByPolicy,
			)
		}
	}
	return nil
}

// measurePolicy returns how many times as long each rollout under the policy took as the one beside it.
func measurePolicy(ctx context.Context, o options, runs int) (clocks, cpus []float64, err error) {
	b, cleanUp, err := newBench(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	defer cleanUp()
	if err := b.nodesReady(ctx); err != nil {
		return nil, nil, err
	}
	if err := b.create(ctx); err != nil {
		return nil, nil, err
	}
	// The first rollout makes what later ones find: it counts for nobody.
	if err := b.rollOut(ctx, "everynode.io/demo:warm"); err != nil {
		return nil, nil, err
	}
	version := 0
	roll := func(ctx context.Context) error {
		version++
		return b.rollOut(ctx, fmt.Sprintf("everynode.io/demo:v%d", version))
	}
	for range runs {
		b.settle()
		without, err := b.time(ctx, roll)
		if err != nil {
			return nil, nil, err
		}
		if err := b.follows(ctx, true); err != nil {
			return nil, nil, err
		}
		b.settle()
		under, err := b.time(ctx, roll)
		if err != nil {
			return nil, nil, err
		}
		if err := b.follows(ctx, false); err != nil {
			return nil, nil, err
		}
		clock, cpu := under.took.Seconds()/without.took.Seconds(), under.cpu.Seconds()/without.cpu.Seconds()
		fmt.Printf("| %d | %s | %s | %.2f times | %.2f times |\n", o.nodes, without, under, clock, cpu)
		clocks, cpus = append(clocks, clock), append(cpus, cpu)
	}
	return clocks, cpus, nil
}

// follows has the DaemonSet follow a policy, or none, and waits until the controller knows.
func (b *bench) follows(ctx context.Context, policy bool) error {
	own, err := everynode.NewForConfig(b.config)
	if err != nil {
		return err
	}
	policies, rollouts := own.RolloutPolicies("default"), own.DaemonSetRollouts("default")
	if !policy {
		// A change that is under way would be held without its policy.
		if err := b.complete(ctx, rollouts); err != nil {
			return err
		}
		return policies.Delete(ctx, "bench", metav1.DeleteOptions{})
	}
	if _, err := policies.Create(
		ctx, &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "bench"}}, metav1.CreateOptions{},
	); err != nil {
		return err
	}
	if err := b.until(ctx, "the policy to be followed", func(ctx context.Context) (bool, error) {
		p, err := policies.Get(ctx, "bench", metav1.GetOptions{})
		return err == nil && p.Status.MatchedCount == 1, err
	}); err != nil {
		return err
	}
	return b.complete(ctx, rollouts)
}

// complete waits until the rollout is, for the template that there is now.
func (b *bench) complete(ctx context.Context, rollouts *everynode.DaemonSetRollouts) error {
	return b.until(ctx, "the rollout to be complete", func(ctx context.Context) (bool, error) {
		ds, err := b.client.AppsV1().DaemonSets("default").Get(ctx, updated, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		list, err := rollouts.List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			return false, err
		}
		s := &list.Items[0].Status
		return s.Phase == v1alpha1.PhaseComplete && s.DaemonSetGeneration == ds.Generation, nil
	})
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
