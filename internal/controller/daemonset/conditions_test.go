package daemonset

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

func conditionOf(ds *appsv1.DaemonSet, t appsv1.DaemonSetConditionType) appsv1.DaemonSetCondition {
	for _, c := range ds.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return appsv1.DaemonSetCondition{}
}

// said waits until the DaemonSet's condition has the reason and contains the text.
func said(t *testing.T, a *fakeAPI, name string, kind appsv1.DaemonSetConditionType, reason, text string) *appsv1.DaemonSet {
	t.Helper()
	var out *appsv1.DaemonSet
	eventually(t, func() string {
		a.mu.Lock()
		defer a.mu.Unlock()
		ds, err := get[*appsv1.DaemonSet](a, kindDaemonSet, "default", name)
		if err != nil {
			return err.Error()
		}
		out = ds
		if c := conditionOf(ds, kind); c.Reason != reason || !strings.Contains(c.Message, text) {
			return fmt.Sprintf("condition is %+v, want %s with %q", c, reason, text)
		}
		return ""
	})
	return out
}

func TestConditionsAreWrittenBesideOthers(t *testing.T) {
	a := newFakeAPI(t)
	a.manualStart = true
	a.add(testNode("n1"))
	runController(t, a)
	ds := testDaemonSet("logs")
	foreign := appsv1.DaemonSetCondition{Type: "Audited", Status: corev1.ConditionTrue, Reason: "Somebody", Message: "else's"}
	ds.Status.Conditions = []appsv1.DaemonSetCondition{foreign}
	a.add(ds)
	waiting := said(t, a, "logs", fact.ConditionAvailable, fact.NodesUnavailable,
		"0 of 1 node has an available pod; waiting for n1 (pod logs-")
	since := conditionOf(waiting, fact.ConditionProgressing).LastTransitionTime
	if since.IsZero() {
		t.Errorf("the conditions have no time: %+v", waiting.Status.Conditions)
	}
	eventually(t, func() string {
		if len(list[*corev1.Pod](a, kindPod)) == 0 {
			return "there is no pod"
		}
		return ""
	})
	edit(t, a, "default", list[*corev1.Pod](a, kindPod)[0].Name, start)
	done := said(t, a, "logs", fact.ConditionAvailable, fact.AllNodesAvailable, "1 of 1 node has an available pod")
	if got := conditionOf(done, "Audited"); got != foreign {
		t.Errorf("somebody else's condition is now %+v", got)
	}
	if c := conditionOf(done, fact.ConditionProgressing); c.Reason != fact.DaemonSetUpdated || !c.LastTransitionTime.Equal(&since) {
		t.Errorf("Progressing stayed True and is %+v, its time was %v", c, since)
	}
}

// An API that does not keep the conditions is not written to again and again,
// even where nothing slows the writes down.
func TestForgottenConditionsMakeNoLoop(t *testing.T) {
	a := newFakeAPI(t)
	a.forgetConditions = true
	a.add(testNode("n0"))
	_, stop := startLimited(t, a, row.Config{StatusInterval: time.Nanosecond})
	defer stop()
	pinned := testDaemonSet("logs")
	pinned.Spec.Template.Spec.NodeName = "n0"
	a.add(pinned)
	settled(t, a, "logs", 1)
	a.add(testDaemonSet("witness"))
	settled(t, a, "witness", 1)
	writes := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.statusWrites["logs"]
	}
	before := writes()
	for i := range 10 {
		edit(t, a, "default", "logs", func(ds *appsv1.DaemonSet) { ds.Labels = map[string]string{"edit": fmt.Sprint(i)} })
		// Another DaemonSet that moves on is proof of turns taken meanwhile.
		a.add(testNode(fmt.Sprintf("n%d", i+1)))
		settled(t, a, "witness", int32(i+2))
	}
	if got := writes(); got != before {
		t.Errorf("the status was written %d times though nothing happened", got-before)
	}
}

func TestFailedPlacementIsToldOnce(t *testing.T) {
	a := newFakeAPI(t)
	a.manualStart = true
	a.add(testNode("n1"))
	events := runController(t, a)
	a.add(testDaemonSet("logs"))
	said(t, a, "logs", fact.ConditionAvailable, fact.NodesUnavailable, "is not scheduled yet")
	name := list[*corev1.Pod](a, kindPod)[0].Name
	// The number of nodes is not about this one.
	for total := 3; total <= 5; total++ {
		edit(t, a, "default", name, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
				Message: fmt.Sprintf("0/%d nodes are available: 1 Insufficient memory, %d node(s) didn't satisfy plugin(s) [NodeAffinity].", total, total-1)}}
		})
		said(t, a, "logs", fact.ConditionAvailable, fact.NodesUnavailable, "n1 (pod "+name+" cannot be placed: Insufficient memory)")
	}
	edit(t, a, "default", name, start)
	settled(t, a, "logs", 1)
	told := 0
	for len(events.Events) > 0 {
		if e := <-events.Events; e == `Warning FailedPlacement failed to place pod on "n1": Insufficient memory` {
			told++
		} else if strings.Contains(e, "FailedPlacement") {
			t.Errorf("unexpected event %q", e)
		}
	}
	if told != 1 {
		t.Errorf("it was told %d times, want once", told)
	}
}
