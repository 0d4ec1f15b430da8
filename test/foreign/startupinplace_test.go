package foreign

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// TestNodesStartInPlaceOfKubernetes has nodes closed before they are ready, and their daemons started in order, where
// our controller makes the pods in place of kube-controller-manager, and no webhook is there.
func TestNodesStartInPlaceOfKubernetes(t *testing.T) {
	b := &beside{cluster: startWith(t, 1, "")}
	b.write("definitions.yaml", b.run(t, "controller", "--print-crds").ends(t, 0).out)
	b.kubectl(t, "apply", "-f", "definitions.yaml")
	b.kubectl(t, "wait", "crd/nodestartups.everynode.io", "crd/rolloutpolicies.everynode.io",
		"--for=condition=Established", "--timeout=1m")
	b.startManager("*,-daemonset-controller")
	b.kubectl(t, "apply", "-f", b.example(t, "controller-rbac.yaml"))
	b.control(t)
	await(t, "pods may be made", func(ctx context.Context) error {
		_, err := b.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"nodes that are there stay open", b.staysOpenInPlace},
		{"a node is closed before it is ready, and its groups start in order", b.startsInOrder},
		{"a node that is ready before anybody leads stays open, and that is told", b.joinsUnled},
		{"a node that closes itself needs no leader at that moment", b.closesItself},
		{"a node whose machine has started again is closed by the leader", b.startsAgain},
		{"a timeout goes on without a daemon", b.goesOnWithout},
		{"without a gate the room is not kept, and that is said", b.keepsNoRoom},
		{"the NodeStartup goes, and its nodes open", b.goesInPlace},
		{"whoever leaves takes the annotations along", b.leavesInPlace},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	b.refusals(account, 50)
}

// staysOpenInPlace has a NodeStartup of two groups come when there is a node. No template has the toleration.
func (b *beside) staysOpenInPlace(t *testing.T) {
	for _, name := range []string{"net", "log"} {
		b.kubectl(t, "apply", "-f", b.write(name+".yaml", listedSet(name, "")))
	}
	b.kubectl(t, "apply", "-f", b.write("startup.yaml", startupOf("net", "log")))
	b.startupSays(t, plan.NodesClosed, metav1.ConditionTrue, "")
	b.startupSays(t, plan.RoomKept, metav1.ConditionTrue, "")
	b.marked(t, "sim-0001")
	b.gated(t, "sim-0001", false)
}

// marked waits until a node is marked with its boot.
func (b *beside) marked(t *testing.T, name string) {
	t.Helper()
	await(t, name+" is marked", func(context.Context) error {
		if mark, _ := nodestartup.MarkOf(b.node(t, name)); mark.BootID == "" {
			return fmt.Errorf("its annotations are %v", b.node(t, name).Annotations)
		}
		return nil
	})
}

// startsInOrder has a node join. There is no version of it that ordinary pods may be placed on before its daemons are
// available.
func (b *beside) startsInOrder(t *testing.T) {
	const name = "late-0001"
	b.eager(t, name)
	history := b.history(t, name)
	b.bare(t, name) // as a kubelet does; it is ready some time later
	b.gated(t, name, true)
	b.simulateMore("late-", 1, "")
	b.opens(t, name, "net", "log")
	reached := 0
	for _, n := range history() {
		gate := nodestartup.TaintOf(n.Spec.Taints)
		protected := false
		for _, taint := range n.Spec.Taints {
			protected = protected || taint.Key == corev1.TaintNodeNotReady && taint.Effect == corev1.TaintEffectNoSchedule
		}
		switch {
		case gate == nil && !protected && reached < 2:
			t.Errorf("ordinary pods may be placed on it at group %d: %v", reached, n.Spec.Taints)
		case gate != nil:
			place, _ := nodestartup.PlaceOf(gate.Value)
			reached = max(reached, place.Group)
		}
	}
	if reached != 2 {
		t.Errorf("it has reached group %d", reached)
	}
	made := map[string]time.Time{}
	for _, p := range b.onNode(t, name) {
		made[p.Labels["app"]] = p.CreationTimestamp.Time
		if turn := nodestartup.GroupOf(&p); p.Labels["app"] == "log" && turn != 2 {
			t.Errorf("the pod of log says group %d", turn)
		}
	}
	if after := made["log"].Sub(made["net"]); after < 4*time.Second { // net is available 4 s after it is ready
		t.Errorf("log was made %v after net", after)
	}
}

// joinsUnled has a node join while nobody leads.
func (b *beside) joinsUnled(t *testing.T) {
	b.controller.stop()
	const name = "unled-0001"
	b.simulateMore("unled-", 1, "")
	await(t, "the node takes pods", func(context.Context) error {
		if n, err := b.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); err != nil || len(n.Spec.Taints) > 0 {
			return fmt.Errorf("it is %v, %w", n.Spec.Taints, err)
		}
		return nil
	})
	b.control(t)
	b.nodeEvent(t, name, "NotClosed", "it was ready before a controller had closed it")
	b.gated(t, name, false)
	b.startupSays(t, plan.NodesClosed, metav1.ConditionFalse, name)
	b.run(t, "doctor").says(t, name, "it was ready before a controller had closed it")
	b.run(t, "why", name).ends(t, 0).says(t, "stayed open", "it was ready before")
	b.kubectl(t, "annotate", "node", name, nodestartup.NotClosedAnnotation+"-")
	b.startupSays(t, plan.NodesClosed, metav1.ConditionTrue, "")
}

// closesItself has a node register with the taint while nobody leads, as a kubelet with --register-with-taints does.
func (b *beside) closesItself(t *testing.T) {
	b.controller.stop()
	const name = "itself-0001"
	b.eager(t, name)
	b.bare(t, name, corev1.Taint{Key: nodestartup.TaintKey, Value: "all_1", Effect: corev1.TaintEffectNoSchedule})
	b.simulateMore("itself-", 1, "")
	b.control(t)
	b.opens(t, name, "net", "log")
	if why := b.node(t, name).Annotations[nodestartup.NotClosedAnnotation]; why != "" {
		t.Errorf("it is told of: %s", why)
	}
}

// goesOnWithout lists a DaemonSet that is missing in a group with a timeout.
func (b *beside) goesOnWithout(t *testing.T) {
	text := startupOf("net", "missing")
	b.kubectl(t, "apply", "-f", b.write("startup.yaml", strings.TrimSuffix(text, "\n")+"\n    timeout: 5s\n    then: Open\n"))
	b.startupSays(t, plan.DaemonSetsFound, metav1.ConditionFalse, "default/missing")
	const name = "without-0001"
	b.bare(t, name)
	b.gated(t, name, true)
	b.simulateMore("without-", 1, "")
	b.nodeEvent(t, name, "StartedWithout", "default/missing")
	b.gated(t, name, false)
}

// keepsNoRoom looks at a NodeStartup without a gate.
func (b *beside) keepsNoRoom(t *testing.T) {
	b.write("startup.yaml", strings.Replace(startupOf("net", "log"), "spec:\n", "spec:\n  gate: None\n", 1))
	b.run(t, "plan", "-f", "startup.yaml").ends(t, 2).says(t, "ordinary pods may take the room of daemons that are to come")
	b.kubectl(t, "apply", "-f", "startup.yaml")
	b.startupSays(t, plan.RoomKept, metav1.ConditionFalse, "the cluster's scheduler knows nothing")
	b.run(t, "doctor").says(t, "ordinary pods may take the room of daemons that are to come")
	const name = "soft-0001"
	b.bare(t, name)
	if n := b.gated(t, name, true); nodestartup.TaintOf(n.Spec.Taints).Effect != corev1.TaintEffectPreferNoSchedule {
		t.Errorf("its taints are %v", n.Spec.Taints)
	}
	b.kubectl(t, "delete", "node", name)
}

// goesInPlace deletes the NodeStartup that a node waits under.
func (b *beside) goesInPlace(t *testing.T) {
	b.kubectl(t, "apply", "-f", b.write("startup.yaml", startupOf("net", "missing")))
	b.startupSays(t, plan.DaemonSetsFound, metav1.ConditionFalse, "default/missing")
	const name = "gone-0001"
	b.bare(t, name)
	b.gated(t, name, true)
	b.kubectl(t, "delete", "nodestartup", "all")
	b.gated(t, name, false)
}

// leavesInPlace leaves with a node closed that nobody opens any more.
func (b *beside) leavesInPlace(t *testing.T) {
	b.controller.stop()
	b.bare(t, "left-0001", corev1.Taint{Key: nodestartup.TaintKey, Value: "all_1", Effect: corev1.TaintEffectNoSchedule})
	b.run(t, "controller", "--leave", "--kubeconfig="+b.kubeconfig).ends(t, 0).says(t, "1 nodes that a NodeStartup had closed")
	b.untouchedNodes(t)
}
