package loops

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testenv"
)

// TestPodCIDRs: every node has its own pod network, also across a restart.
func TestPodCIDRs(t *testing.T) {
	t.Parallel()
	e := testenv.Start(t)
	add := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if _, err := e.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	assigned := func(count int) map[string]string {
		t.Helper()
		var byNode map[string]string
		e.Eventually(fmt.Sprintf("%d nodes have networks of their own", count), func(ctx context.Context) error {
			nodes, err := e.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			byNode = map[string]string{}
			holder := map[string]string{}
			for _, n := range nodes.Items {
				if n.Spec.PodCIDR == "" || len(n.Spec.PodCIDRs) != 1 || n.Spec.PodCIDRs[0] != n.Spec.PodCIDR {
					return fmt.Errorf("node %s has podCIDR %q and podCIDRs %q", n.Name, n.Spec.PodCIDR, n.Spec.PodCIDRs)
				}
				if other := holder[n.Spec.PodCIDR]; other != "" {
					t.Fatalf("nodes %s and %s share %s", n.Name, other, n.Spec.PodCIDR)
				}
				holder[n.Spec.PodCIDR], byNode[n.Name] = n.Name, n.Spec.PodCIDR
			}
			if len(byNode) != count {
				return fmt.Errorf("there are %d", len(byNode))
			}
			return nil
		})
		return byNode
	}
	add("n1", "n2", "n3")
	before := assigned(3)
	e.Restart()
	add("n4")
	after := assigned(4)
	for name, cidr := range before {
		if after[name] != cidr {
			t.Errorf("node %s had %s and has %s after a restart", name, cidr, after[name])
		}
	}
}
