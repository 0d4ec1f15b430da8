package scheduler

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func priority(value int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Priority = &value }
}

// lingering makes the deletion of pods graceful: they stay, marked, until the test removes them.
func (c *cluster) lingering() {
	c.client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		deletion := action.(clienttesting.DeleteAction)
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		object, err := c.client.Tracker().Get(pods, deletion.GetNamespace(), deletion.GetName())
		if err != nil {
			return true, nil, err
		}
		pod, now := object.(*corev1.Pod).DeepCopy(), metav1.Now()
		pod.DeletionTimestamp = &now
		return true, pod, c.client.Tracker().Update(pods, pod, pod.Namespace)
	})
}

func (c *cluster) remove(podName string) {
	c.t.Helper()
	if err := c.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", podName); err != nil {
		c.t.Fatal(err)
	}
	c.settle()
}

func TestDaemonPodPreemptsOnItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "1", "1Gi"), node("b", "1", "1Gi"))
		c.lingering()
		c.create(pod("low", pinnedTo("a"), requests("1", "1Gi"), priority(1)))
		c.create(pod("daemon", pinnedTo("a"), requests("1", "1Gi"), priority(100)))
		low := c.pod("low")
		if low.DeletionTimestamp == nil {
			t.Fatal("pod low is not being deleted")
		}
		condition := low.Status.Conditions[len(low.Status.Conditions)-1]
		if condition.Type != corev1.DisruptionTarget || condition.Status != corev1.ConditionTrue || condition.Reason != corev1.PodReasonPreemptionByScheduler ||
			condition.Message != "default-scheduler: preempting to accommodate a higher priority pod" {
			t.Errorf("pod low has condition %+v, want DisruptionTarget by the scheduler", condition)
		}
		c.expectEvent("low", "default-scheduler Normal Preempted: Preempted by pod pod-daemon on node a")
		if got := c.pod("daemon").Status.NominatedNodeName; got != "a" {
			t.Errorf("pod daemon is nominated to %q, want a", got)
		}
		c.expectPending("daemon", "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) didn't satisfy plugin(s) [NodeAffinity].")

		// The room is promised: a lesser pod does not slip in while the victim leaves.
		c.create(pod("sneaky", pinnedTo("a"), requests("1", "1Gi"), priority(50)))
		time.Sleep(2 * time.Second)
		c.remove("low")
		time.Sleep(2 * time.Second)
		c.settle()
		c.expectOn("daemon", "a")
		c.expectOn("sneaky", "")
	})
}

func TestFailedPreemptionIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "1", "1Gi"))
		failures := 1
		c.client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures--
			if failures >= 0 {
				return true, nil, apierrors.NewInternalError(errors.New("disk full"))
			}
			return false, nil, nil
		})
		c.create(pod("low", requests("1", "1Gi"), priority(1)))
		c.create(pod("high", requests("1", "1Gi"), priority(2)))
		c.expectOn("low", "a")
		time.Sleep(5 * time.Second)
		c.settle()
		c.expectOn("high", "a")
	})
}

func TestDeletedPreemptorGivesItsRoomBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "1", "1Gi"))
		c.lingering()
		c.create(pod("low", requests("1", "1Gi"), priority(1)))
		c.create(pod("high", requests("1", "1Gi"), priority(100)))
		c.create(pod("middle", requests("1", "1Gi"), priority(50)))
		c.remove("low")
		c.remove("high")
		time.Sleep(10 * time.Second)
		c.settle()
		c.expectOn("middle", "a")
	})
}

func TestPromiseHoldsBeforeItIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		low := pod("low", requests("1", "1Gi"), priority(1))
		low.Spec.NodeName = "a"
		c := start(t, node("a", "1", "1Gi"), low,
			pod("high", requests("1", "1Gi"), priority(100)), pod("middle", requests("1", "1Gi"), priority(50)))
		if got := c.pod("high").Status.NominatedNodeName; got != "a" {
			t.Errorf("pod high is nominated to %q, want a", got)
		}
		if got := c.pod("middle").Status.NominatedNodeName; got != "" {
			t.Errorf("pod middle is nominated to %q, which is promised to a more important pod", got)
		}
	})
}
