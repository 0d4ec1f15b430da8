package agent

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/agent/eviction"
)

// TestStaticPodMakesRoom: a static pod for which there is no room starts when a pod that matters less has ended for it, and that one
// says why.
func TestStaticPodMakesRoom(t *testing.T) {
	r, a := newMemoryRuntime(), newAPI()
	p := startStaticPods(t, r, a)
	p.node = func() *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("10")}}}
	}
	asks := func(pod *corev1.Pod, cpu string) *corev1.Pod {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		return pod
	}
	a.create(asks(boxPod("small"), "500m"))
	a.create(asks(boxPod("large"), "1500m"))
	p.staticPods(nil)
	a.watch(p)
	p.RuntimeListed(nil)
	r.await(t, "sandbox small", "start small/main", "sandbox large", "start large/main")

	p.staticPods([]*corev1.Pod{asks(staticPod("s", "1"), "1200m")})
	r.await(t, "kill uid-large-main-0")
	r.await(t, "stop uid-large-0", "sandbox s", "start s/main")
	got := a.await(t, "uid-large", "to make room", hasPhase(corev1.PodFailed))
	if got.Status.Reason != eviction.PreemptReason || got.Status.Message != eviction.PreemptMessage {
		t.Errorf("it failed with %s: %s", got.Status.Reason, got.Status.Message)
	}
	a.awaitEvent(t, "large: Warning Preempting Preempted in order to admit critical pod")
	if got := a.get("uid-small"); got.Status.Phase != corev1.PodRunning {
		t.Errorf("the other one is %+v, want it running", got.Status)
	}
	// One that would not fit on the empty node ends nobody.
	p.staticPods([]*corev1.Pod{asks(staticPod("s", "1"), "1200m"), asks(staticPod("huge", "2"), "3")})
	eventually(t, "the one that is too large is refused", func() bool {
		return strings.Contains(a.log(), "huge: Warning OutOfcpu")
	})
	if got := a.get("uid-small"); got.Status.Phase != corev1.PodRunning {
		t.Errorf("for one that fits nowhere it became %+v", got.Status)
	}
}
