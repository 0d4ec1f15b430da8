package main

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// nodesToKillOver is how many pods are on their way when the server is killed.
const nodesToKillOver = 1000

// TestKilledServerLosesAndDoublesNothing kills the control plane, with -9, while
// it creates a thousand pods, and again after the restart. In the end every node
// must have exactly one.
func TestKilledServerLosesAndDoublesNothing(t *testing.T) {
	ctx := context.Background()
	b := &bench{options: options{binary: needs.Everynode(t, "../.."), nodes: nodesToKillOver, sets: 1, unavailable: "10%",
		patience: 15 * time.Minute}, dir: t.TempDir()}
	must(t, b.start(ctx))
	t.Cleanup(func() { b.stop() })
	must(t, b.nodesReady(ctx))
	must(t, b.apply(ctx, updated))
	for _, share := range []int{4, 2} {
		must(t, b.until(ctx, "some of the pods", func(ctx context.Context) (bool, error) {
			pods, err := b.pods(ctx, "0")
			return len(pods) >= nodesToKillOver/share, err
		}))
		must(t, b.server.Process.Kill())
		<-b.ended
		must(t, b.start(ctx))
	}
	must(t, b.available(ctx, updated))
	pods, err := b.pods(ctx, "") // no older than the status that was just seen
	must(t, err)
	perNode := map[string]int{}
	for _, p := range pods {
		perNode[p.Spec.NodeName]++
		if p.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s on %q is %s, want Running", p.Name, p.Spec.NodeName, p.Status.Phase)
		}
	}
	for node, n := range perNode {
		if n != 1 {
			t.Errorf("node %q has %d pods, want 1", node, n)
		}
	}
	if len(perNode) != nodesToKillOver {
		t.Errorf("%d nodes have pods, want %d", len(perNode), nodesToKillOver)
	}
}

func (b *bench) pods(ctx context.Context, version string) ([]corev1.Pod, error) {
	list, err := b.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
