package simulator

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A simulated node gives a running pod more and less, restarts it where its policy says so, waits where it has no room, and
// says what it can never give.
func TestSimulatedPodsAreResized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1}, nil)
		whole := c.node("sim-0001").Status.Allocatable.Memory().Value()
		asks := func(share float64) corev1.ResourceList {
			return corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(int64(share*float64(whole)), resource.BinarySI)}
		}
		for _, name := range []string{"p", "q"} {
			c.bind(newPod(name, "demo", func(p *corev1.Pod) {
				p.Generation = 1
				p.Spec.Containers[0].Resources.Requests = asks(0.4)
				if name == "q" {
					p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
						{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
				}
			}), "sim-0001")
		}
		resize := func(name string, share float64) {
			t.Helper()
			p := c.pod(name).DeepCopy()
			p.Generation++
			p.Spec.Containers[0].Resources.Requests = asks(share)
			if _, err := c.client.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			c.pass(time.Second)
		}
		want := func(name string, share float64, reason string, restarts int32) {
			t.Helper()
			p := c.pod(name)
			s, pending := p.Status.ContainerStatuses[0], ""
			for _, c := range p.Status.Conditions {
				switch c.Type {
				case corev1.PodResizePending:
					pending = c.Reason
				case corev1.PodResizeInProgress:
					t.Errorf("%s is still being resized: %+v", name, c)
				}
			}
			has, is := asks(share), fmt.Sprint(p.Status.ObservedGeneration == p.Generation, ready(p), pending, s.RestartCount)
			if s.Resources.Requests.Memory().Cmp(*has.Memory()) != 0 || s.AllocatedResources.Memory().Cmp(*has.Memory()) != 0 ||
				is != fmt.Sprint(true, true, reason, restarts) {
				t.Errorf("%s has %v of %v, %s", name, s.Resources.Requests, has, is)
			}
		}
		resize("p", 0.5)
		want("p", 0.5, "", 0)
		resize("p", 2)
		want("p", 0.5, corev1.PodReasonInfeasible, 0)
		resize("p", 0.7)
		want("p", 0.5, corev1.PodReasonDeferred, 0)
		resize("q", 0.2)
		want("q", 0.2, "", 1)
		c.pass(roomAgain)
		want("p", 0.7, "", 0)
		resize("p", 0.1)
		want("p", 0.1, "", 0)
	})
}
