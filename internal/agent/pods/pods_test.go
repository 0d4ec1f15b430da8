package pods_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	testclock "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/agent/cri/pleg"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/sources"
	"github.com/everynode/everynode/internal/agent/volumes"
)

func TestNothingStartsBeforeBothSidesAreKnown(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a)
	pod := podstest.Pod("p")
	p.PodChanged(pod)
	p.RuntimeListed(nil)
	if p.Has(pod.UID) {
		t.Error("a worker was started before the API was read")
	}
	p.APIListed()
	if p.Has(pod.UID) {
		t.Error("a worker was started before the runtime was read after the API")
	}
	p.RuntimeListed(nil)
	r.Await(t, "sandbox p", "start p/main")
}

// A runtime that hangs, so that each look ends with an error, makes the node unwell.
func TestNodeIsUnwellWithoutAGoodLook(t *testing.T) {
	clk := testclock.NewFakeClock(time.Unix(1e9, 0))
	p := pods.New(t.Context(), pods.Config{Clock: clk})
	for _, step := range []struct {
		look func()
		well bool
	}{
		{func() { p.RuntimeFailed(context.DeadlineExceeded) }, true},
		{func() { p.RuntimeFailed(context.DeadlineExceeded) }, false},
		{func() { p.RuntimeFailed(context.DeadlineExceeded) }, false},
		{func() { p.RuntimeListed(nil) }, true},
		{func() { p.RuntimeFailed(context.DeadlineExceeded) }, true},
		{func() {}, false},
	} {
		clk.Step(2 * time.Minute)
		step.look()
		if err := p.Healthy(); (err == nil) != step.well {
			t.Errorf("after %s: %v, want well: %v", clk.Since(time.Unix(1e9, 0)), err, step.well)
		}
	}
}

func TestOrphanIsRemovedAtTheSecondLook(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	r.Pods["old"] = &podworker.Runtime{Sandboxes: []podworker.Sandbox{{ID: "s", Ready: true}},
		Containers: []podworker.Container{{ID: "c", Name: "c", SandboxID: "s", State: podworker.Running}}}
	p := podstest.Start(t, r, a)
	p.APIListed()
	list := []pleg.PodRef{{UID: "old", Namespace: "ns", Name: "old"}}
	p.RuntimeListed(list)
	if p.Has("old") {
		t.Error("a pod was taken for an orphan at the first look")
	}
	if !p.Remains("old") || p.Remains("older") {
		t.Errorf("before the second look, what the runtime no longer has is not what is cleared away: %t, %t",
			p.Remains("old"), p.Remains("older"))
	}
	p.RuntimeListed(list)
	r.Await(t, "kill c", "stop s", "remove c", "remove s", "clean old")
}

func TestMirrorPodIsNotRun(t *testing.T) {
	p := podstest.Start(t, podstest.NewRuntime(), podstest.NewAPI())
	p.APIListed()
	p.RuntimeListed(nil)
	pod := podstest.Pod("mirror")
	pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "hash"}
	p.PodChanged(pod)
	if p.Has(pod.UID) {
		t.Error("a worker was started for the reflection of a static pod")
	}
}

// A watch that broke shows a new pod of the same name as a change of the old one.
func TestPodReplacedByANamesake(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a)
	first := podstest.Pod("p")
	client := fake.NewClientset(first)
	s := sources.New(client, "n1")
	handled, err := s.Feed(p)
	podstest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Run(ctx, handled, p.APIListed) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	podstest.Eventually(t, "the pods were listed", func() bool {
		p.RuntimeListed(nil)
		return p.Has(first.UID)
	})
	r.Await(t, "sandbox p", "start p/main")
	second := first.DeepCopy()
	second.UID = "uid-second"
	_, err = client.CoreV1().Pods("default").Update(ctx, second, metav1.UpdateOptions{})
	podstest.Must(t, err)
	r.Await(t, "kill uid-p-main-0", "stop uid-p-0", "remove uid-p-main-0", "remove uid-p-0", "clean uid-p", "sandbox p",
		"start p/main")
}

// A container restarts though its pod got a label when one of its volumes could not be set up any more.
func TestLabelHoldsUpNoRestart(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	volumes := &podstest.Volumes{}
	p := podstest.Start(t, r, a, func(cfg *pods.Config) { cfg.Volumes = volumes })
	a.Create(podstest.Pod("p"))
	a.Watch(p)
	p.RuntimeListed(nil)
	r.Await(t, "sandbox p", "start p/main")
	volumes.Fail(errors.New("configmap \"c\" not found"))
	a.Update("uid-p", func(pod *corev1.Pod) { pod.Labels = map[string]string{"a": "b"} })
	podstest.Eventually(t, "the volumes know the label", func() bool {
		return slices.ContainsFunc(volumes.Changed(), func(pod *corev1.Pod) bool { return pod.Labels["a"] == "b" })
	})
	r.SetState("exit", "uid-p-main-0", podworker.Exited)
	p.RuntimeChanged("uid-p")
	r.Await(t, "exit", "start p/main")
}

// Pods that run say the node's new address when it has one.
func TestPodsSayTheNodesNewAddress(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	var now atomic.Pointer[string]
	first, second := "192.0.2.1", "192.0.2.9"
	now.Store(&first)
	p := podstest.Start(t, r, a, func(cfg *pods.Config) { cfg.HostIPs = func() []string { return []string{*now.Load()} } })
	a.Watch(p)
	pod := podstest.Pod("p")
	a.Create(pod)
	p.APIListed()
	p.RuntimeListed(nil)
	a.Await(t, pod.UID, "to say the first address", func(pod *corev1.Pod) bool { return pod.Status.HostIP == first })
	r.Await(t, "sandbox p", "start p/main")
	now.Store(&second)
	p.AddressChanged()
	a.Await(t, pod.UID, "to say the second address", func(pod *corev1.Pod) bool { return pod.Status.HostIP == second })
}

// What the node has mounted as an image is in the status of the pod.
func TestStatusSaysWhatIsMounted(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a, func(c *pods.Config) {
		c.Volumes = &podstest.Volumes{Given: []volumes.Mount{{Name: "data", ContainerPath: "/data", HostPath: "/data"},
			{Name: "rules", ContainerPath: "/rules", Image: volumes.Image{Ref: "sha256:1", Digest: "example.com/rules@sha256:2"}}}}
	})
	a.Watch(p)
	p.RuntimeListed(nil)
	pod := podstest.Pod("p")
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "rules", MountPath: "/rules"}}
	a.Create(pod)
	got := a.Await(t, pod.UID, "to run", podstest.HasPhase(corev1.PodRunning)).Status.ContainerStatuses[0].VolumeMounts
	if len(got) != 2 || got[0].VolumeStatus != nil || got[1].VolumeStatus == nil ||
		got[1].VolumeStatus.Image.ImageRef != "example.com/rules@sha256:2" {
		t.Errorf("the status says %+v", got)
	}
}
