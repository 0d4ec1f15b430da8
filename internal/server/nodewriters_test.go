package server

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/controller/nodeipam"
	"github.com/everynode/everynode/internal/controller/nodelifecycle"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/simulator"
)

// nodeWay is one way to write about nodes.
type nodeWay struct {
	sim     simulator.Writer
	network nodeipam.Writer
	health  nodelifecycle.Writer
}

// refused stands for any refusal: by HTTP it is an invalid change of the UID.
const refused = "refused"

// TestInsideDoorWritesNodesTheSame goes both ways through what a node lives through, and compares what is stored and
// what is refused. The controllers of the control plane write about the nodes too: they have taken place, or have
// nothing to do with what is compared.
func TestInsideDoorWritesNodesTheSame(t *testing.T) {
	t.Parallel()
	client, http, door := ways(t)
	ctx := t.Context()
	in := door.inside
	both := map[string]nodeWay{
		"by-http": {http.sim, nodeipam.NewWriter(client), nodelifecycle.NewWriter(client)},
		"by-door": {door.sim, in.PodNetworks(), in.NodeLifecycle(nodelifecycle.NewWriter(client))},
	}
	long := metav1.NewTime(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	networks := node.PodNetworks{Cluster: netip.MustParsePrefix("10.244.0.0/16"), NodeBits: 24}
	pressure := corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "Fine",
		LastHeartbeatTime: long, LastTransitionTime: long}
	for _, step := range []struct {
		name, want string
		do         func(w nodeWay, n *corev1.Node) error
	}{
		{"create", "done", func(w nodeWay, n *corev1.Node) error {
			_, err := w.sim.CreateNode(ctx, &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{"a": "b"}},
				Status: corev1.NodeStatus{Capacity: corev1.ResourceList{"cpu": resource.MustParse("4")},
					Conditions: []corev1.NodeCondition{pressure}},
			})
			return err
		}},
		{"create again", "AlreadyExists", func(w nodeWay, n *corev1.Node) error {
			_, err := w.sim.CreateNode(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}})
			return err
		}},
		{"a network for another node of the name", refused, func(w nodeWay, n *corev1.Node) error {
			other := n.DeepCopy()
			other.UID = "other"
			return w.network.SetPodCIDR(ctx, other, netip.Prefix{}, networks)
		}},
		{"what the network is a part of", "done", func(w nodeWay, n *corev1.Node) error {
			return w.network.SetPodCIDR(ctx, n, netip.Prefix{}, networks)
		}},
		{"another network", "Invalid", func(w nodeWay, n *corev1.Node) error {
			return w.network.SetPodCIDR(ctx, n, netip.MustParsePrefix("10.244.250.0/24"), networks)
		}},
		{"a network for a node that is gone", "NotFound", func(w nodeWay, n *corev1.Node) error {
			return w.network.SetPodCIDR(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: n.UID}},
				netip.Prefix{}, networks)
		}},
		{"report", "done", func(w nodeWay, n *corev1.Node) error {
			n.Status.NodeInfo.KubeletVersion = "v1.36.3"
			_, err := w.sim.UpdateNodeStatus(ctx, n)
			return err
		}},
		{"report about an old version", "Conflict", func(w nodeWay, n *corev1.Node) error {
			n.ResourceVersion = "1"
			_, err := w.sim.UpdateNodeStatus(ctx, n)
			return err
		}},
		{"label", "done", func(w nodeWay, n *corev1.Node) error {
			labelled, err := w.sim.LabelNode(ctx, n, "example.com/x", "y")
			if err == nil && (labelled.Labels["example.com/x"] != "y" || labelled.Labels["a"] != "b") {
				return fmt.Errorf("the labels are %v", labelled.Labels)
			}
			return err
		}},
		{"label another node of the name", refused, func(w nodeWay, n *corev1.Node) error {
			n.UID = "other"
			_, err := w.sim.LabelNode(ctx, n, "example.com/x", "z")
			return err
		}},
		{"conditions", "done", func(w nodeWay, n *corev1.Node) error {
			changed := pressure
			changed.Status, changed.Reason, changed.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
			_, err := w.health.SetConditions(ctx, n, []corev1.NodeCondition{changed,
				{Type: corev1.NodePIDPressure, Status: corev1.ConditionUnknown, LastTransitionTime: long,
					LastHeartbeatTime: long}})
			return err
		}},
		{"conditions of an old version", "Conflict", func(w nodeWay, n *corev1.Node) error {
			n.ResourceVersion = "1"
			_, err := w.health.SetConditions(ctx, n, []corev1.NodeCondition{pressure})
			return err
		}},
		{"taints", "done", func(w nodeWay, n *corev1.Node) error {
			return w.health.SetTaints(ctx, n, append(n.Spec.Taints,
				corev1.Taint{Key: "example.com/x", Effect: corev1.TaintEffectNoSchedule}))
		}},
		{"the same taint twice", "Invalid", func(w nodeWay, n *corev1.Node) error {
			taint := corev1.Taint{Key: "example.com/y", Effect: corev1.TaintEffectNoSchedule}
			return w.health.SetTaints(ctx, n, []corev1.Taint{taint, taint})
		}},
	} {
		for name, w := range both {
			if got := nodeStep(ctx, client.CoreV1().Nodes().Get, name,
				func(n *corev1.Node) error { return step.do(w, n) }); got != step.want &&
				(step.want != refused || got == "done") {
				t.Errorf("%s, %s: %s, want %s", step.name, name, got, step.want)
			}
		}
		compareNodes(t, client.CoreV1().Nodes().Get, step.name)
	}
}

type getNode func(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Node, error)

// nodeStep does a step on the node as it is now, again while a controller writes at the same time, and says how it
// ended.
func nodeStep(ctx context.Context, get getNode, name string, do func(*corev1.Node) error) string {
	for range 20 {
		n, err := get(ctx, name, metav1.GetOptions{})
		if err != nil {
			n = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		}
		version := n.ResourceVersion
		if err = do(n); err == nil {
			return "done"
		}
		if now, getErr := get(ctx, name, metav1.GetOptions{}); !apierrors.IsConflict(err) || getErr != nil ||
			now.ResourceVersion == version {
			return string(apierrors.ReasonForError(err))
		}
	}
	return "never came to it"
}

// compareNodes compares the two nodes, but for what differs of any two and what the control plane's own loops say of
// them, which comes at its own time.
func compareNodes(t *testing.T, get getNode, step string) {
	t.Helper()
	shape := func(name string) *corev1.Node {
		n, err := get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.ObjectMeta = metav1.ObjectMeta{Labels: n.Labels, Annotations: n.Annotations}
		n.Spec.PodCIDR, n.Spec.PodCIDRs = "", nil
		var taints []corev1.Taint
		for _, taint := range n.Spec.Taints {
			if taint.Key == "example.com/x" {
				taints = append(taints, taint)
			}
		}
		n.Spec.Taints = taints
		n.Annotations = nil
		return n
	}
	if diff := cmp.Diff(shape("by-http"), shape("by-door")); diff != "" {
		t.Errorf("after %q the nodes differ (- by HTTP, + by the door):\n%s", step, diff)
	}
}
