package scheduler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
)

func ofUID(uid types.UID) func(*corev1.Node) {
	return func(n *corev1.Node) { n.UID = uid }
}

func closed(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: "gate", Effect: corev1.TaintEffectNoSchedule}}
}

// targets are the UIDs of the nodes that bindings named, in order.
func (c *cluster) targets() (out []types.UID) {
	for _, a := range c.client.Actions() {
		if a.GetVerb() == "create" && a.GetSubresource() == "binding" {
			out = append(out, a.(clienttesting.CreateAction).GetObject().(*corev1.Binding).Target.UID)
		}
	}
	return out
}

// replace makes another node of the name.
func (c *cluster) replace(n *corev1.Node) {
	c.t.Helper()
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	if err := c.client.Tracker().Delete(nodes, "", n.Name); err != nil {
		c.t.Error(err)
	}
	if err := c.client.Tracker().Add(n); err != nil {
		c.t.Error(err)
	}
}

// A binding names the very node that was decided for. If that was replaced by a closed one before the binding is done,
// its room is given back, nothing is told of it, and the pod is placed as soon as the new node takes it.
func TestBindingNamesTheVeryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "4Gi", ofUID("first")))
		replaced := false
		c.refuse = func(string) error {
			if !replaced {
				replaced = true
				c.replace(node("a", "2", "4Gi", ofUID("second"), closed))
			}
			return nil
		}
		c.create(pod("work", requests("1", "1Gi")))
		if got := c.targets(); len(got) != 1 || got[0] != "first" {
			t.Errorf("bindings name %q", got)
		}
		c.expectOn("work", "")
		if events := c.events("work"); len(events) > 0 {
			t.Errorf("a node that was replaced is told of: %q", events)
		}
		if dump := c.s.loop.cluster.Dump(); strings.Contains(dump, "assumed") {
			t.Errorf("the room is kept:\n%s", dump)
		}
		time.Sleep(time.Second)
		c.settle()
		if condition := scheduledCondition(c.pod("work")); condition == nil || !strings.Contains(condition.Message, "untolerated taint") {
			t.Errorf("after a second it waits for %+v", condition)
		}
		if got := c.targets(); len(got) != 1 {
			t.Errorf("bindings name %q: it is bound to a closed node", got)
		}
		open, err := c.client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		open = open.DeepCopy()
		open.Spec.Taints = nil
		c.update(open)
		time.Sleep(2 * time.Second)
		c.settle()
		c.expectOn("work", "a")
		if got := c.targets(); len(got) != 2 || got[1] != "second" {
			t.Errorf("bindings name %q", got)
		}
	})
}

// Room for a pod that does not exist yet is room on the very node.
func TestReservedRoomIsOnTheVeryNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "4Gi", ofUID("first")))
		p := pod("daemon", pinnedTo("a"))
		r := c.reserve(p)
		c.replace(node("a", "2", "4Gi", ofUID("second")))
		c.settle()
		b := r.Binding(p)
		if b.Target.Name != "a" || b.Target.UID != "first" || b.Name != "daemon" || b.UID != p.UID {
			t.Errorf("the binding is %+v", b)
		}
		r.Refused()
		c.settle()
		if b := c.reserve(p).Binding(p); b.Target.UID != "second" {
			t.Errorf("the next binding is for %q", b.Target.UID)
		}
	})
}
