package daemonset

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/objects/pod"
)

// byOther has somebody else, such as a VerticalPodAutoscaler, give the pod of a node other memory, as it runs.
func byOther(t *testing.T, a policyAPI, node, memory string) {
	t.Helper()
	for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
		if pod.TargetNode(p) != node {
			continue
		}
		edit(t, a.fakeAPI, "default", p.Name, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = apiresource.MustParse(memory)
			p.Generation++
			p.Status.ObservedGeneration = p.Generation
		})
	}
}

// What somebody else gives a pod is his: it is neither taken back nor a reason to replace the pod, which counts as up to
// date, by a controller that starts as well. A change of variants that gives that amount a new value takes it over, once;
// one that gives others leaves it.
func TestAnotherWriterOfAmounts(t *testing.T) {
	a, want := resizable(t, 2, nil)
	stop := startWithVariants(t, a)
	defer func() { stop() }()
	before := wantDaemons(t, a.fakeAPI, want)
	settled(t, a.fakeAPI, "logs", 2)
	resizes := 0
	still := func() {
		t.Helper()
		time.Sleep(100 * time.Millisecond)
		settled(t, a.fakeAPI, "logs", 2)
		if got := changed(before, wantDaemons(t, a.fakeAPI, want)); len(got) > 0 {
			t.Errorf("%v have another pod", got)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.resizes != resizes {
			t.Errorf("pods were resized %d times, want %d", a.resizes, resizes)
		}
	}
	byOther(t, a, "n0", "400Mi")
	want["n0"] = "plain 400Mi"
	still()
	stop()
	stop = startWithVariants(t, a)
	still()

	formula(t, a, "node.allocatable.memory * 0.02")
	wantDaemons(t, a.fakeAPI, every(want, "plain 336Mi"))
	resizes += 2
	still()
	byOther(t, a, "n0", "400Mi")
	want["n0"] = "plain 400Mi"
	still()

	edit(t, a.fakeAPI, "default", "all", func(v *v1alpha1.DaemonSetVariant) {
		v.Spec.Resources["c"].Requests[corev1.ResourceCPU] = "0.5"
		v.Generation++
	})
	eventually(t, func() string {
		for _, p := range list[*corev1.Pod](a.fakeAPI, kindPod) {
			if cpu := p.Spec.Containers[0].Resources.Requests.Cpu(); cpu.MilliValue() != 500 {
				return "a pod requests " + cpu.String() + " of cpu"
			}
		}
		return ""
	})
	resizes += 2
	still()
}
