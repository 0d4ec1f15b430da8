package pods_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/cri/pleg"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/remember"
)

// gated is a runtime whose answers wait until the test lets them go. A gate of nil is open.
type gated struct {
	*podstest.Runtime
	// observe are the gates of pods that are looked at, by UID.
	observe map[types.UID]chan struct{}
	create  chan struct{}
	pull    chan struct{}
	// came is told of every call that comes to a gate.
	came chan string
}

func newGated() *gated {
	return &gated{Runtime: podstest.NewRuntime(), observe: map[types.UID]chan struct{}{}, came: make(chan string, 100)}
}

func (g *gated) pass(ctx context.Context, what string, gate chan struct{}) error {
	if gate == nil {
		return nil
	}
	g.came <- what
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gated) Observe(ctx context.Context, uid types.UID) (*podworker.Runtime, error) {
	if err := g.pass(ctx, "observe "+string(uid), g.observe[uid]); err != nil {
		return nil, err
	}
	return g.Runtime.Observe(ctx, uid)
}

func (g *gated) CreateContainer(ctx context.Context, spec cri.ContainerSpec) (string, error) {
	if err := g.pass(ctx, "create", g.create); err != nil {
		return "", err
	}
	return g.Runtime.CreateContainer(ctx, spec)
}

// Ensure has each image at hand under its own name.
func (g *gated) Ensure(ctx context.Context, _ *corev1.Pod, c *corev1.Container) (images.Image, error) {
	return images.Image{Ref: c.Image}, g.pass(ctx, "pull "+c.Image, g.pull)
}

// twoCPUs is a node with two CPUs.
func twoCPUs(cfg *pods.Config) {
	cfg.Node = func() *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("10")}}}
	}
}

func asking(pod *corev1.Pod, cpu string) *corev1.Pod {
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	return pod
}

// held is what a runtime has of a pod with one container in that state.
func held(uid string, state podworker.ContainerState) *podworker.Runtime {
	return &podworker.Runtime{
		Sandboxes:  []podworker.Sandbox{{ID: uid + "-0", Ready: state == podworker.Running, HostNetwork: true}},
		Containers: []podworker.Container{{ID: uid + "-main-0", Name: "main", SandboxID: uid + "-0", State: state}},
	}
}

// A pod that was reported to have ended does not run again when what it left is removed, while the API does not hear of
// its end.
func TestEndedPodDoesNotRunAgain(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a)
	pod := podstest.Pod("p")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	a.Create(pod)
	a.Watch(p)
	p.RuntimeListed(nil)
	r.Await(t, "sandbox p", "start p/main")
	a.Await(t, pod.UID, "to run", podstest.HasPhase(corev1.PodRunning))
	a.Leave(true)
	r.SetState("exit", "uid-p-main-0", podworker.Exited)
	p.RuntimeChanged(pod.UID)
	r.Await(t, "exit", "stop uid-p-0")
	podstest.Eventually(t, "its room is given back", func() bool { return !p.Active(pod.UID) })
	if told := p.DiscardEnded(); told != 1 {
		t.Errorf("%d pods were told to leave nothing", told)
	}
	r.Await(t, "remove uid-p-main-0", "remove uid-p-0")
	a.Leave(false)
	a.Await(t, pod.UID, "to have succeeded", podstest.HasPhase(corev1.PodSucceeded))
	if len(r.Done) > 0 {
		t.Errorf("then the runtime was asked to %s", <-r.Done)
	}
}

// What is told to pods that ended is not told to one that has yet to begin.
func TestPodThatBeginsKeepsItsLogs(t *testing.T) {
	g, a := newGated(), podstest.NewAPI()
	pod := podstest.Pod("p")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	gate := make(chan struct{})
	g.observe[pod.UID] = gate
	p := podstest.Start(t, g, a)
	a.Create(pod)
	a.Watch(p)
	p.RuntimeListed(nil)
	<-g.came
	if told := p.DiscardEnded(); told != 0 {
		t.Errorf("%d pods were told to leave nothing, and none has ended", told)
	}
	close(gate)
	g.Await(t, "sandbox p", "start p/main")
	g.SetState("exit", "uid-p-main-0", podworker.Exited)
	p.RuntimeChanged(pod.UID)
	g.Await(t, "exit", "stop uid-p-0")
	a.Await(t, pod.UID, "to have succeeded", podstest.HasPhase(corev1.PodSucceeded))
	p.RuntimeChanged(pod.UID)
	if told := p.DiscardEnded(); told != 1 {
		t.Errorf("%d pods were told to leave nothing, and one has ended", told)
	}
	g.Await(t, "remove uid-p-main-0", "remove uid-p-0")
}

// An agent that starts gives no room to pods that ended before, though the runtime has something of them: those that
// came meanwhile have it.
func TestEndedPodHasNoRoomAtTheStart(t *testing.T) {
	for name, knows := range map[string]bool{"the API knows": true, "only the node knows": false} {
		t.Run(name, func(t *testing.T) {
			g, a := newGated(), podstest.NewAPI()
			old := asking(podstest.Pod("old"), "1500m")
			old.Spec.RestartPolicy = corev1.RestartPolicyNever
			g.Pods[old.UID] = held("uid-old", podworker.Exited)
			gate := make(chan struct{})
			g.observe[old.UID] = gate
			p := podstest.Start(t, g, a, twoCPUs)
			if knows {
				old.Status.Phase = corev1.PodSucceeded
			} else {
				ended := old.Status.DeepCopy()
				ended.Phase = corev1.PodSucceeded
				p.Recall([]remember.Pod{{Pod: old, Ended: ended}})
			}
			a.Create(old)
			a.Create(asking(podstest.Pod("new"), "1500m"))
			a.Watch(p)
			p.RuntimeListed([]pleg.PodRef{{UID: old.UID, Namespace: "default", Name: "old"}})
			<-g.came
			a.Await(t, "uid-new", "to run", podstest.HasPhase(corev1.PodRunning))
			g.Await(t, "sandbox new", "start new/main")
			close(gate)
			g.Await(t, "stop uid-old-0")
			a.Await(t, old.UID, "to have succeeded", podstest.HasPhase(corev1.PodSucceeded))
		})
	}
}

// A pod that was deleted by force while no agent ran keeps its room until it has left, for all that the API says.
func TestPodDeletedWhileNoAgentRan(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	old := asking(podstest.Pod("old"), "1500m")
	r.Pods[old.UID] = held("uid-old", podworker.Running)
	stop := make(chan struct{})
	p := podstest.Start(t, slowRuntime{r, stop}, a, twoCPUs)
	p.Recall([]remember.Pod{{Pod: old}})
	a.Create(asking(podstest.Pod("new"), "1500m"))
	a.Watch(p)
	listed := []pleg.PodRef{{UID: old.UID, Namespace: "default", Name: "old", Runs: true}}
	p.RuntimeListed(listed)
	podstest.Eventually(t, "the new pod was taken", func() bool { return p.Active("uid-new") })
	p.RuntimeListed(listed)
	podstest.Eventually(t, "the old pod is removed", func() bool { return p.Has(old.UID) })
	if len(r.Done) > 0 {
		t.Errorf("while it stops, the runtime was asked to %s", <-r.Done)
	}
	close(stop)
	r.Await(t, "kill uid-old-main-0")
	r.Await(t, "stop uid-old-0", "remove uid-old-main-0", "remove uid-old-0", "clean uid-old", "sandbox new", "start new/main")
}

// What is deleted by force is remembered until it has left: an agent that is killed meanwhile knows of it, and does not
// start it again.
func TestPodThatLeavesIsRemembered(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	stop, book := make(chan struct{}), pods.NewBook(nil, nil)
	p := podstest.Start(t, slowRuntime{r, stop}, a, func(cfg *pods.Config) { cfg.Book = book })
	a.Create(podstest.Pod("p"))
	a.Watch(p)
	p.RuntimeListed(nil)
	r.Await(t, "sandbox p", "start p/main")
	a.Drop("uid-p")
	list := book.List()
	if len(list) != 1 || list[0].Pod.DeletionTimestamp == nil {
		t.Fatalf("remembered are %+v", list)
	}
	close(stop)
	r.Await(t, "kill uid-p-main-0")
	r.Await(t, "stop uid-p-0", "remove uid-p-main-0", "remove uid-p-0", "clean uid-p")
	podstest.Eventually(t, "it is forgotten", func() bool { return len(book.List()) == 0 })
	// Another agent, which does not reach the API, only clears up.
	r2, a2 := podstest.NewRuntime(), podstest.NewAPI()
	r2.Pods["uid-p"] = held("uid-p", podworker.Running)
	p2 := podstest.Start(t, r2, a2)
	p2.Recall(list)
	listed := []pleg.PodRef{{UID: "uid-p", Namespace: "default", Name: "p", Runs: true}}
	p2.RuntimeListed(listed)
	p2.AloneForLong()
	p2.RuntimeListed(listed)
	r2.Await(t, "kill uid-p-main-0")
	r2.Await(t, "stop uid-p-0", "remove uid-p-main-0", "remove uid-p-0")
}

// If it leaves by itself, nobody waits for it.
func TestOrphanThatLeavesByItself(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	old := asking(podstest.Pod("old"), "1500m")
	p := podstest.Start(t, r, a, twoCPUs)
	p.Recall([]remember.Pod{{Pod: old}})
	a.Create(asking(podstest.Pod("new"), "1500m"))
	a.Watch(p)
	p.RuntimeListed([]pleg.PodRef{{UID: old.UID, Namespace: "default", Name: "old", Runs: true}})
	podstest.Eventually(t, "the new pod was taken", func() bool { return p.Active("uid-new") })
	p.RuntimeListed(nil)
	r.Await(t, "sandbox new", "start new/main")
	if p.Active(old.UID) {
		t.Error("it has room though it left")
	}
}

// A container that is being made when its pod is deleted does not start.
func TestNothingStartsOnceAPodIsToEnd(t *testing.T) {
	g, a := newGated(), podstest.NewAPI()
	g.create = make(chan struct{})
	prober := podstest.NewProber()
	p := podstest.Start(t, g, a, func(cfg *pods.Config) { cfg.Prober = prober })
	a.Create(podstest.Pod("p"))
	a.Watch(p)
	p.RuntimeListed(nil)
	g.Await(t, "sandbox p")
	if came := <-g.came; came != "create" {
		t.Fatalf("the runtime is asked to %s", came)
	}
	a.MarkDeleted("uid-p", 30)
	podstest.Eventually(t, "the worker knows", func() bool { return prober.Kept("uid-p") })
	close(g.create)
	g.Await(t, "stop uid-p-0", "remove uid-p-main-0", "remove uid-p-0", "clean uid-p")
	if log := a.Log(); strings.Contains(log, "Started") || strings.Contains(log, "Failed") {
		t.Errorf("the events are\n%s", log)
	}
}

// A container is made from the image of its spec, also where that changed while another image was pulled.
func TestImageThatChangesDuringThePull(t *testing.T) {
	g, a := newGated(), podstest.NewAPI()
	g.pull = make(chan struct{})
	made := make(chan string, 10)
	p := podstest.Start(t, &noting{g, made}, a)
	a.Create(podstest.Pod("p"))
	a.Watch(p)
	p.RuntimeListed(nil)
	if came := <-g.came; came != "pull "+podstest.BoxImage {
		t.Fatalf("the runtime is asked to %s", came)
	}
	a.Update("uid-p", func(pod *corev1.Pod) { pod.Spec.Containers[0].Image = "everynode.test/box:2" })
	podstest.Eventually(t, "the worker knows", func() bool {
		return slices.ContainsFunc(p.ActivePods(), func(pod *corev1.Pod) bool {
			return pod.Spec.Containers[0].Image == "everynode.test/box:2"
		})
	})
	close(g.pull)
	g.Await(t, "sandbox p", "start p/main")
	if got := <-made; got != "everynode.test/box:2 of everynode.test/box:2" {
		t.Errorf("it runs %s", got)
	}
}

// noting notes of which image, of which spec, containers are made.
type noting struct {
	*gated
	made chan string
}

func (n *noting) CreateContainer(ctx context.Context, spec cri.ContainerSpec) (string, error) {
	n.made <- spec.Image.Ref + " of " + spec.Container.Image
	return n.gated.CreateContainer(ctx, spec)
}

// A static pod whose manifest comes back is admitted as a new one, though the last look at the runtime is from before
// it left.
func TestManifestThatComesBack(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	p := podstest.Start(t, r, a, podstest.WithStaticPods, twoCPUs)
	static := asking(podstest.StaticPod("s", "1"), "1500m")
	p.SetStatics([]*corev1.Pod{static})
	a.Watch(p)
	p.RuntimeListed(nil)
	r.Await(t, "sandbox s", "start s/main")
	p.RuntimeListed([]pleg.PodRef{{UID: static.UID, Namespace: "default", Name: "s", Runs: true}})
	p.SetStatics(nil)
	uid := string(static.UID)
	r.Await(t, "kill "+uid+"-main-0", "stop "+uid+"-0", "remove "+uid+"-main-0", "remove "+uid+"-0", "clean "+uid)
	podstest.Eventually(t, "it left", func() bool { return !p.Active(static.UID) })
	a.Create(asking(podstest.Pod("p"), "1500m"))
	r.Await(t, "sandbox p", "start p/main")
	p.SetStatics([]*corev1.Pod{static})
	r.Await(t, "kill uid-p-main-0")
	a.AwaitEvent(t, "p: Warning Preempting")
}

// A pod that waits for the end of another one ends at once when it is to end itself, as when its node shuts down.
func TestPodThatWaitsForRoomIsToEnd(t *testing.T) {
	r, a := podstest.NewRuntime(), podstest.NewAPI()
	stop := make(chan struct{})
	p := podstest.Start(t, slowRuntime{r, stop}, a, twoCPUs)
	a.Create(asking(podstest.Pod("first"), "1500m"))
	a.Watch(p)
	p.RuntimeListed(nil)
	r.Await(t, "sandbox first", "start first/main")
	a.Drop("uid-first")
	a.Create(asking(podstest.Pod("second"), "1500m"))
	podstest.Eventually(t, "the second pod was taken", func() bool { return p.Active("uid-second") })
	p.Terminate("uid-second", podworker.Termination{Reason: "Terminated", Message: "shutdown", Grace: 1})
	got := a.Await(t, "uid-second", "to end", podstest.HasPhase(corev1.PodFailed))
	if got.Status.Reason != "Terminated" || !p.Active("uid-first") {
		t.Errorf("it is %s, and the first one is there: %t", got.Status.Reason, p.Active("uid-first"))
	}
	close(stop)
	r.Await(t, "kill uid-first-main-0")
	r.Await(t, "stop uid-first-0", "remove uid-first-main-0", "remove uid-first-0", "clean uid-first")
}

// graces is a runtime whose containers do not stop before the test ends.
type graces struct {
	*podstest.Runtime
	told chan time.Duration
}

func (g graces) StopContainer(ctx context.Context, _ string, grace time.Duration) error {
	g.told <- grace
	<-ctx.Done()
	return ctx.Err()
}

// A pod that was deleted, by force too, has no longer than the node that ends it then.
func TestDeletedPodEndsWithItsNode(t *testing.T) {
	for name, remove := range map[string]func(*podstest.API){
		"gracefully": func(a *podstest.API) { a.MarkDeleted("uid-p", 3600) },
		"by force":   func(a *podstest.API) { a.Drop("uid-p") },
	} {
		t.Run(name, func(t *testing.T) {
			r, a := graces{podstest.NewRuntime(), make(chan time.Duration, 10)}, podstest.NewAPI()
			p := podstest.Start(t, r, a)
			pod := podstest.Pod("p")
			pod.Spec.TerminationGracePeriodSeconds = new(int64(3600))
			a.Create(pod)
			a.Watch(p)
			p.RuntimeListed(nil)
			r.Await(t, "sandbox p", "start p/main")
			a.Await(t, pod.UID, "to run", podstest.HasPhase(corev1.PodRunning))
			remove(a)
			if got := <-r.told; got != time.Hour {
				t.Errorf("it has %s", got)
			}
			p.Terminate(pod.UID, podworker.Termination{Reason: "Terminated", Message: "shutdown", Grace: 9})
			p.Terminate(pod.UID, podworker.Termination{Reason: "Terminated", Message: "shutdown", Grace: 20})
			select {
			case got := <-r.told:
				if got != 9*time.Second {
					t.Errorf("when its node ends it, it has %s", got)
				}
			case <-time.After(podstest.Patience):
				t.Error("when its node ends it, it has as long as before")
			}
		})
	}
}
