package main

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
)

// So much longer a rollout may take under a policy that asks for no pauses than without one, and where that makes a
// ConfigMap a part of revisions than under one that does not.
const (
	mostByPolicy  = 1.3
	mostByContent = 1.1
)

// compared is how many times as long rollouts took: under a policy as without one, by the clock and in CPU time, and
// with content as under the policy alone.
type compared struct{ clock, cpu, content, contentCPU float64 }

// runPolicy compares rollouts without a policy, under one that asks for no pauses, and under one that has content, one
// after the other on one control plane: what else the machine does then meets all.
func runPolicy(ctx context.Context, o options, nodes []int, runs int) error {
	fmt.Println(machine())
	fmt.Printf(
		"\nRollouts with maxUnavailable %s, in turn without a policy, under one without pauses, and under one with "+
			"content; seconds by the clock / seconds of the server's CPU time.\n\n",
		o.unavailable,
	)
	fmt.Println("| nodes | without | under a policy | by the clock | CPU | with content | by the clock | CPU |")
	fmt.Println("|------:|--------:|---------------:|-------------:|----:|-------------:|-------------:|----:|")
	o.mounts = true
	for _, o.nodes = range nodes {
		all, err := measurePolicy(ctx, o, runs)
		if err != nil {
			return fmt.Errorf("measure %d nodes with and without a policy: %w", o.nodes, err)
		}
		of := func(value func(compared) float64) float64 {
			var values []float64
			for _, c := range all {
				values = append(values, value(c))
			}
			return median(values)
		}
		m := compared{
			of(func(c compared) float64 { return c.clock }), of(func(c compared) float64 { return c.cpu }),
			of(func(c compared) float64 { return c.content }), of(func(c compared) float64 { return c.contentCPU }),
		}
		fmt.Printf("| %d | | median of %d | %.2f times | %.2f times | | %.2f times | %.2f times |\n",
			o.nodes, runs, m.clock, m.cpu, m.content, m.contentCPU)
		if m.clock > mostByPolicy || m.content > mostByContent {
			return fmt.Errorf("with %d nodes a rollout took %.2f times as long under a policy, and %.2f times that with "+
				"content: more than %.1f, or %.1f", o.nodes, m.clock, m.content, mostByPolicy, mostByContent)
		}
	}
	return nil
}

// measurePolicy compares so many rounds of rollouts.
func measurePolicy(ctx context.Context, o options, runs int) (all []compared, err error) {
	b, cleanUp, err := newBench(ctx, o)
	if err != nil {
		return nil, err
	}
	defer cleanUp()
	if err := b.nodesReady(ctx); err != nil {
		return nil, err
	}
	if err := b.makeConf(ctx); err != nil {
		return nil, err
	}
	if err := b.create(ctx); err != nil {
		return nil, err
	}
	version := 0
	roll := func(ctx context.Context) error {
		version++
		return b.rollOut(ctx, fmt.Sprintf("everynode.io/demo:v%d", version))
	}
	under := func(spec *v1alpha1.RolloutPolicySpec) (took phase, err error) {
		if err := b.follows(ctx, spec); err != nil {
			return took, err
		}
		b.settle()
		return b.time(ctx, roll)
	}
	for range runs {
		// What the round before has left counts for nobody.
		if err := roll(ctx); err != nil {
			return nil, err
		}
		b.settle()
		without, err := b.time(ctx, roll)
		if err != nil {
			return nil, err
		}
		plain, err := under(&v1alpha1.RolloutPolicySpec{})
		if err != nil {
			return nil, err
		}
		with, err := under(&v1alpha1.RolloutPolicySpec{Content: &v1alpha1.Content{Settle: "1s"}})
		if err != nil {
			return nil, err
		}
		if err := b.follows(ctx, nil); err != nil {
			return nil, err
		}
		c := compared{
			plain.took.Seconds() / without.took.Seconds(), plain.cpu.Seconds() / without.cpu.Seconds(),
			with.took.Seconds() / plain.took.Seconds(), with.cpu.Seconds() / plain.cpu.Seconds(),
		}
		fmt.Printf("| %d | %s | %s | %.2f times | %.2f times | %s | %.2f times | %.2f times |\n",
			o.nodes, without, plain, c.clock, c.cpu, with, c.content, c.contentCPU)
		all = append(all, c)
	}
	return all, nil
}

// follows has the DaemonSet follow a policy in place of the one that it follows, or none, and waits until all nodes
// have what is wanted then.
func (b *bench) follows(ctx context.Context, spec *v1alpha1.RolloutPolicySpec) error {
	own, err := everynode.NewForConfig(b.config)
	if err != nil {
		return err
	}
	policies, rollouts := own.RolloutPolicies("default"), own.DaemonSetRollouts("default")
	is, err := policies.Get(ctx, "bench", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		is, err = nil, nil
	case err != nil:
		return err
	}
	if is != nil { // a change that is under way would be held without its policy
		if err := b.complete(ctx, rollouts, is.Spec.Content != nil); err != nil {
			return err
		}
	}
	switch {
	case spec == nil:
		return policies.Delete(ctx, "bench", metav1.DeleteOptions{})
	case is == nil:
		p := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "bench"}, Spec: *spec}
		_, err = policies.Create(ctx, p, metav1.CreateOptions{})
	default:
		is.Spec = *spec
		_, err = policies.Update(ctx, is, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	if err := b.until(ctx, "the policy to be followed", func(ctx context.Context) (bool, error) {
		p, err := policies.Get(ctx, "bench", metav1.GetOptions{})
		return err == nil && p.Status.MatchedCount == 1, err
	}); err != nil {
		return err
	}
	return b.complete(ctx, rollouts, spec.Content != nil)
}

// complete waits until the rollout is, for the template that there is now, with content or without.
func (b *bench) complete(ctx context.Context, rollouts *everynode.DaemonSetRollouts, hasContent bool) error {
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
		return s.Phase == v1alpha1.PhaseComplete && s.DaemonSetGeneration == ds.Generation &&
			hasContent == (content.IDOf(s.TargetRevision) != ""), nil
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
