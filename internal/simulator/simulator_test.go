package simulator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cluster is a simulator that runs against an API without a server. Time is the test's own; settle waits until nothing
// moves any more.
type cluster struct {
	*Simulator
	t      *testing.T
	client *fake.Clientset
	end    func()
}

type sharedInformers struct {
	factory informers.SharedInformerFactory
}

func (s sharedInformers) GetInformer(_ context.Context, obj client.Object, _ ...crcache.InformerGetOption) (crcache.Informer, error) {
	switch obj.(type) {
	case *corev1.Pod:
		return s.factory.Core().V1().Pods().Informer(), nil
	case *corev1.Node:
		return s.factory.Core().V1().Nodes().Informer(), nil
	}
	return nil, fmt.Errorf("no informer for %T", obj)
}

// start runs a simulator; on an API of its own, or on that of a cluster whose simulator has ended.
func start(t *testing.T, config Config, before *cluster) *cluster {
	t.Helper()
	c := &cluster{t: t}
	if before != nil {
		c.client = before.client
	} else {
		c.client = fake.NewClientset()
		var created atomic.Int64
		c.client.PrependReactor("create", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
			a.(clienttesting.CreateAction).GetObject().(*corev1.Node).UID = types.UID(fmt.Sprint(created.Add(1)))
			return false, nil, nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(c.client, 0)
	config.Informers, config.Writer = sharedInformers{factory}, NewWriter(c.client)
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	c.Simulator = s
	factory.Core().V1().Pods().Informer()
	factory.Core().V1().Nodes().Informer()
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(ctx)
		factory.Shutdown()
		close(ended)
	}()
	c.end = func() {
		cancel()
		for err := range ended {
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		synctest.Wait()
	}
	t.Cleanup(func() { c.end() })
	c.pass(time.Second)
	return c
}

// pass lets time go by and waits until nothing moves.
func (c *cluster) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (c *cluster) bind(p *corev1.Pod, nodeName string) {
	c.t.Helper()
	p.Spec.NodeName = nodeName
	if err := c.client.Tracker().Add(p); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

func (c *cluster) pod(name string) *corev1.Pod {
	c.t.Helper()
	p, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *cluster) node(name string) *corev1.Node {
	c.t.Helper()
	n, err := c.client.CoreV1().Nodes().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (c *cluster) renewed(name string) time.Time {
	c.t.Helper()
	lease, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return lease.Spec.RenewTime.Time
}

// mark begins the deletion of a pod, as the API server does when grace is asked for.
func (c *cluster) mark(name string) {
	c.t.Helper()
	p, now, grace := c.pod(name).DeepCopy(), metav1.Now(), int64(30)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
	if err := c.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), p, "default"); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

func newPod(name, image string, edits ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "main", Image: image}}},
	}
	for _, edit := range edits {
		edit(p)
	}
	return p
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func TestNodesRegisterAndStayAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 3, Labels: map[string]string{"zone": "z1"}}, nil)
		for _, name := range []string{"sim-0001", "sim-0002", "sim-0003"} {
			n := c.node(name)
			if !healthy(n) || n.Labels[SimulatedLabel] != "true" || n.Labels[corev1.LabelHostname] != name || n.Labels["zone"] != "z1" {
				t.Errorf("node %s has labels %v and conditions %v", name, n.Labels, n.Status.Conditions)
			}
		}
		for range 10 {
			c.pass(30 * time.Second)
			for _, name := range []string{"sim-0001", "sim-0002", "sim-0003"} {
				if age := time.Since(c.renewed(name)); age > 20*time.Second {
					t.Errorf("the last heartbeat of node %s is %s ago, want at most 20 s", name, age)
				}
			}
		}
	})
}

func TestHeartbeatsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 20, Heartbeat: 20 * time.Second}, nil)
		c.pass(40 * time.Second)
		at := map[time.Time]int{}
		for i := range 20 {
			at[c.renewed(fmt.Sprintf("sim-%04d", i+1)).Truncate(time.Second)]++
		}
		if len(at) < 19 {
			t.Errorf("heartbeats of 20 nodes came in %d different seconds, want one a second: %v", len(at), at)
		}
	})
}

// TestHeartbeatsComeInCompany: those that are due at nearly the same time come at one, and none comes late.
func TestHeartbeatsComeInCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes, heartbeat = 60, 2 * time.Second
		c := start(t, Config{Nodes: nodes, Heartbeat: heartbeat}, nil)
		c.pass(5 * heartbeat)
		at := map[time.Time]int{}
		for i := range nodes {
			renewed := c.renewed(fmt.Sprintf("sim-%04d", i+1))
			if age := time.Since(renewed); age > heartbeat {
				t.Errorf("a heartbeat is %s ago, want %s at most", age, heartbeat)
			}
			at[renewed]++
		}
		if len(at) < 15 || len(at) > 21 {
			t.Errorf("heartbeats of %d nodes came at %d moments of %s, want one in each tenth of a second", nodes, len(at), heartbeat)
		}
	})
}

func TestStoppedNodeFallsSilentAndComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 2}, nil)
		c.bind(newPod("p", "demo"), "sim-0001")
		c.StopNode("sim-0001")
		stopped := time.Now()
		c.pass(time.Minute)
		if last := c.renewed("sim-0001"); last.After(stopped) {
			t.Errorf("stopped node renewed its lease at %s, %s after it was stopped", last, last.Sub(stopped))
		}
		if last := c.renewed("sim-0002"); !last.After(stopped) {
			t.Error("the other node is silent too")
		}
		unknown := c.node("sim-0001").DeepCopy()
		for i := range unknown.Status.Conditions {
			unknown.Status.Conditions[i].Status = corev1.ConditionUnknown
		}
		if _, err := c.client.CoreV1().Nodes().UpdateStatus(t.Context(), unknown, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.mark("p")
		c.bind(newPod("q", "demo"), "sim-0001")
		if c.pod("q").Status.Phase == corev1.PodRunning || healthy(c.node("sim-0001")) {
			t.Error("a stopped node acts")
		}
		c.StartNode("sim-0001")
		c.pass(time.Second)
		if !healthy(c.node("sim-0001")) || time.Since(c.renewed("sim-0001")) > time.Second {
			t.Error("node that was started again is not well")
		}
		if !ready(c.pod("q")) {
			t.Errorf("pod q is %+v, want it ready", c.pod("q").Status)
		}
		if _, err := c.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("pod p, which was deleted meanwhile, is still there: %v", err)
		}
	})
}

func TestDeletedNodeStaysAwayUntilItIsStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1}, nil)
		if err := c.client.CoreV1().Nodes().Delete(t.Context(), "sim-0001", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Minute)
		if _, err := c.client.CoreV1().Nodes().Get(t.Context(), "sim-0001", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("a deleted node is back by itself: %v", err)
		}
		c.StartNode("sim-0001")
		c.StartNode("another")
		c.pass(time.Second)
		if !healthy(c.node("sim-0001")) || !healthy(c.node("another")) {
			t.Error("a node that was started is not well")
		}
	})
}

// The news that a node was deleted comes late: when it has been started again, or is there again.
func TestANodeIsStartedBeforeItsEndIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1}, nil)
		known, alive := c.nodes.get("sim-0001")
		old := c.nodes.objectOf(known)
		c.StopNode("sim-0001")
		known.busy.Lock() // it acts later
		c.StartNode("sim-0001")
		c.nodes.gone(old)
		known.busy.Unlock()
		c.pass(time.Minute)
		if _, alive = c.nodes.get("sim-0001"); !alive || time.Since(c.renewed("sim-0001")) > 20*time.Second {
			t.Error("it fell silent when its end was heard of")
		}
		c.StopNode("sim-0001")
		if err := c.client.CoreV1().Nodes().Delete(t.Context(), "sim-0001", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		c.StartNode("sim-0001")
		c.pass(time.Second)
		c.nodes.seen(old)
		c.nodes.gone(old)
		c.pass(time.Minute)
		if _, alive = c.nodes.get("sim-0001"); !alive || !healthy(c.node("sim-0001")) {
			t.Error("it fell silent when the end of the one before it was heard of")
		}
		// Who is deleted after its start stays away.
		c.StopNode("sim-0001")
		c.StartNode("sim-0001")
		c.pass(time.Second)
		if err := c.client.CoreV1().Nodes().Delete(t.Context(), "sim-0001", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Minute)
		if _, alive = c.nodes.get("sim-0001"); alive {
			t.Error("a deleted node is back by itself")
		}
	})
}

func TestPodRunsAfterOneWriteAndGoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1}, nil)
		var writes atomic.Int32
		c.client.PrependReactor("update", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes.Add(1)
			return false, nil, nil
		})
		node := c.node("sim-0001").DeepCopy()
		node.Spec.PodCIDR = "10.244.7.0/24"
		if _, err := c.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.pass(time.Second)
		c.bind(newPod("p", "demo"), "sim-0001")
		p := c.pod("p")
		if p.Status.Phase != corev1.PodRunning || !ready(p) || p.Status.PodIP != "10.244.7.2" || p.Status.HostIP != "100.64.0.1" {
			t.Errorf("pod has status %+v, want it running, ready, with an address of the node's range", p.Status)
		}
		if got := p.Status.ContainerStatuses[0]; got.State.Running == nil || !got.Ready || got.Image != "demo" {
			t.Errorf("container has status %+v, want it running", got)
		}
		c.pass(10 * time.Minute)
		if writes.Load() != 1 {
			t.Errorf("the pod's status was written %d times, want once", writes.Load())
		}
		c.bind(newPod("q", "demo"), "sim-0001")
		if ip := c.pod("q").Status.PodIP; ip != "10.244.7.3" {
			t.Errorf("second pod has address %s, want 10.244.7.3", ip)
		}
		c.mark("p")
		if _, err := c.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("deleted pod is still there: %v", err)
		}
	})
}

func TestProbesSucceedAfterTheirDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1}, nil)
		c.bind(newPod("p", "demo", func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{InitialDelaySeconds: 5}
			p.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: "demo"}}
		}), "sim-0001")
		c.pass(4999 * time.Millisecond)
		if p := c.pod("p"); p.Status.Phase != corev1.PodRunning || ready(p) {
			t.Errorf("after 4.999 s the pod is %s, ready %v; want Running and not ready", p.Status.Phase, ready(p))
		}
		c.pass(2 * time.Millisecond)
		if !ready(c.pod("p")) {
			t.Error("after its delay the pod is not ready")
		}
	})
}

func TestImagesThatFailOrTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorder := record.NewFakeRecorder(100)
		c := start(t, Config{Nodes: 1, Events: recorder, Images: func(image string) Image {
			if image == "slow" {
				return Image{StartDelay: 3 * time.Second}
			}
			return DefaultImages(image)
		}}, nil)
		c.bind(newPod("bad", "example.com/demo:fail"), "sim-0001")
		expectEvents(t, recorder, `Normal Pulling Pulling image "example.com/demo:fail"`,
			`Warning Failed Failed to pull image "example.com/demo:fail": failed to pull and unpack image "example.com/demo:fail": simulated images called fail do not exist`,
			"Warning Failed Error: ErrImagePull")
		c.bind(newPod("good", "demo"), "sim-0001")
		expectEvents(t, recorder, `Normal Pulled Container image "demo" already present on machine`, "Normal Created Created container: main", "Normal Started Started container main")
		c.bind(newPod("slow", "slow"), "sim-0001")
		c.bind(newPod("dropped", "slow"), "sim-0001")
		if p := c.pod("slow"); p.Status.Phase != corev1.PodPending {
			t.Errorf("pod slow is %s while its image is pulled, want Pending", p.Status.Phase)
		}
		c.mark("dropped")
		if _, err := c.client.CoreV1().Pods("default").Get(t.Context(), "dropped", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a pod that is deleted during its pull is still there: %v", err)
		}
		c.pass(3 * time.Second)
		if !ready(c.pod("slow")) {
			t.Error("pod slow is not ready after its image was pulled")
		}
		c.pass(time.Minute)
		bad := c.pod("bad")
		if waiting := bad.Status.ContainerStatuses[0].State.Waiting; ready(bad) || waiting == nil || waiting.Reason != "ImagePullBackOff" {
			t.Errorf("pod bad has status %+v, want ImagePullBackOff", bad.Status)
		}
		c.mark("bad")
		if _, err := c.client.CoreV1().Pods("default").Get(t.Context(), "bad", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("deleted pod with a bad image is still there: %v", err)
		}
	})
}

func expectEvents(t *testing.T, recorder *record.FakeRecorder, want ...string) {
	t.Helper()
	var got []string
	for len(recorder.Events) > 0 {
		got = append(got, <-recorder.Events)
	}
	if !slices.Equal(got, want) {
		t.Errorf("events are\n%q\nwant\n%q", got, want)
	}
}

func TestRestartChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 2}, nil)
		c.bind(newPod("p", "demo"), "sim-0001")
		c.bind(newPod("q", "demo", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "prepare", Image: "demo"}}
		}), "sim-0001")
		node, p, q := c.node("sim-0001"), c.pod("p"), c.pod("q")
		c.end()
		c.client.ClearActions()
		time.Sleep(time.Hour)

		again := start(t, Config{Nodes: 2}, c)
		again.pass(time.Minute)
		for _, pair := range [][2]any{{node, again.node("sim-0001")}, {p, again.pod("p")}, {q, again.pod("q")}} {
			if !equality.Semantic.DeepEqual(pair[0], pair[1]) {
				t.Errorf("before the restart\n%v\nafter it\n%v", pair[0], pair[1])
			}
		}
		for _, action := range again.client.Actions() {
			if action.GetVerb() != "get" && action.GetVerb() != "list" && action.GetVerb() != "watch" && action.GetResource().Resource == "pods" {
				t.Errorf("the restarted simulator does %s pods/%s, want it to leave them", action.GetVerb(), action.GetSubresource())
			}
		}
		if time.Since(again.renewed("sim-0001")) > 20*time.Second {
			t.Error("the restarted simulator renews no leases")
		}
		again.bind(newPod("r", "demo"), "sim-0001")
		if ip := again.pod("r").Status.PodIP; ip == p.Status.PodIP || ip == q.Status.PodIP {
			t.Errorf("new pod has the address %s of a pod from before the restart", ip)
		}
		again.mark("p")
		if _, err := again.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("deleted pod from before the restart is still there: %v", err)
		}
	})
}

func TestFailedWritesAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1}, nil)
		var failures atomic.Int32
		fail := func(clienttesting.Action) (bool, runtime.Object, error) {
			if failures.Add(-1) >= 0 {
				return true, nil, apierrors.NewInternalError(errors.New("disk full"))
			}
			return false, nil, nil
		}
		for _, verb := range []string{"update", "delete", "create"} {
			c.client.PrependReactor(verb, "*", fail)
		}
		failures.Store(3)
		c.bind(newPod("p", "demo"), "sim-0001")
		c.pass(time.Minute)
		if !ready(c.pod("p")) {
			t.Error("pod is not ready after its status could not be written at first")
		}
		failures.Store(2)
		c.mark("p")
		c.pass(time.Minute)
		if _, err := c.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("deleted pod is still there after its deletion failed at first: %v", err)
		}
		failures.Store(3)
		c.StartNode("new")
		c.pass(time.Minute)
		if !healthy(c.node("new")) || time.Since(c.renewed("new")) > 20*time.Second {
			t.Error("node is not well after its registration failed at first")
		}
	})
}

// slowWriter takes a minute to create a node.
type slowWriter struct{ Writer }

func (w slowWriter) CreateNode(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	time.Sleep(time.Minute)
	return w.Writer.CreateNode(ctx, node)
}

func TestHeartbeatsDoNotWaitForRegistrations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{Nodes: 1, NodeWorkers: 1}, nil)
		c.nodes.config.Writer = slowWriter{c.nodes.config.Writer}
		for i := range 5 {
			c.StartNode(fmt.Sprintf("late-%d", i))
		}
		for range 6 {
			c.pass(40 * time.Second)
			if age := time.Since(c.renewed("sim-0001")); age > 20*time.Second {
				t.Errorf("the last heartbeat is %s ago while others register, want at most 20 s", age)
			}
		}
	})
}
