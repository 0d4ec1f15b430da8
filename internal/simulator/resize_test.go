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

// A node that cannot resize says so of each pod that asks, and changes nothing; a pod that is made has what it asks for. Once
// the node can, it does.
func TestNodesThatCannotResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 2, Faults: plan(t, `faults: [{nodes: {matchLabels: {kubernetes.io/hostname: sim-0001}}, noResize: {message: not here}}]`)}, nil)
		memory := func(p *corev1.Pod, amount string) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(amount)}
		}
		want := func(name, has, pending string) {
			t.Helper()
			p, says := c.pod(name), ""
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodResizePending {
					says = c.Reason + ": " + c.Message
				}
			}
			s := p.Status.ContainerStatuses[0]
			if got := s.AllocatedResources.Memory().String(); got != has || says != pending || s.RestartCount != 0 || !ready(p) {
				t.Errorf("%s has %s and says %q, want %s, %q", name, got, says, has, pending)
			}
		}
		for i, name := range []string{"here", "there"} {
			c.bind(newPod(name, "demo", func(p *corev1.Pod) { p.Generation = 1; memory(p, "1Gi") }), fmt.Sprintf("sim-000%d", i+1))
		}
		c.pass(time.Second)
		for _, amount := range []string{"2Gi", "512Mi"} {
			for _, name := range []string{"here", "there"} {
				p := c.pod(name).DeepCopy()
				p.Generation++
				memory(p, amount)
				if _, err := c.client.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			c.pass(time.Second)
			want("here", "1Gi", "Infeasible: not here")
			want("there", amount, "")
		}
		c.bind(newPod("new", "demo", func(p *corev1.Pod) { p.Generation = 1; memory(p, "2Gi") }), "sim-0001")
		c.pass(time.Second)
		want("new", "2Gi", "")
		c.annotate("sim-0001", "none")
		c.pass(time.Second)
		want("here", "512Mi", "")
	})
}
