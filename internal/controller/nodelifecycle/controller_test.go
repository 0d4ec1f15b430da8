package nodelifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
)

// fixture runs the controller on fake informers and an API in memory; its time is the
// bubble's.
type fixture struct {
	t                  *testing.T
	api                *fake.Clientset
	nodes, leases, pod *controllertest.FakeInformer

	mu     sync.Mutex
	events []string
}

// Eventf implements Recorder.
func (f *fixture) Eventf(object runtime.Object, _, reason, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, object.(client.Object).GetName()+" "+reason+": "+fmt.Sprintf(format, args...))
}

// reader serves pods from the API in memory, as the shared cache would.
type reader struct{ api *fake.Clientset }

// Get implements client.Reader.
func (r reader) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	pod, err := r.api.CoreV1().Pods(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err == nil {
		*object.(*corev1.Pod) = *pod
	}
	return err
}

// List implements client.Reader.
func (r reader) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("the controller lists nothing")
}

// start runs the controller in the test's bubble until the test ends.
func start(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, api: fake.NewClientset()}
	informers := &informertest.FakeInformers{}
	for object, informer := range map[client.Object]**controllertest.FakeInformer{
		&corev1.Node{}: &f.nodes, &coordinationv1.Lease{}: &f.leases, &corev1.Pod{}: &f.pod,
	} {
		var err error
		*informer, err = informers.FakeInformerFor(t.Context(), object)
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := newController(informers, reader{f.api}, Config{Writer: NewWriter(f.api), Events: f})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended with: %v", err)
		}
	})
	f.pass(time.Second)
	return f
}

// pass lets time go on and everything that happens meanwhile come to rest.
func (f *fixture) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fixture) addNode(name string, ready corev1.ConditionStatus) {
	f.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Now()}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: metav1.Now()}}
	if _, err := f.api.CoreV1().Nodes().Create(f.t.Context(), node, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	f.nodes.Add(node)
	synctest.Wait()
}

// sync shows the informer what the API holds.
func (f *fixture) sync(name string) *corev1.Node {
	f.t.Helper()
	node, err := f.api.CoreV1().Nodes().Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.nodes.Update(node, node)
	synctest.Wait()
	return node
}

func (f *fixture) renew(namespace, name string) {
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
	f.leases.Update(lease, lease)
}

func (f *fixture) addPod(name, node string) {
	f.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	if _, err := f.api.CoreV1().Pods("default").Create(f.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	f.pod.Add(pod)
}

func (f *fixture) podReady(name string) corev1.ConditionStatus {
	f.t.Helper()
	pod, err := f.api.CoreV1().Pods("default").Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	if len(pod.Status.Conditions) != 2 {
		f.t.Errorf("pod %s has the conditions %v, want two", name, pod.Status.Conditions)
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	return pod.Status.Conditions[i].Status
}

func taintsOf(node *corev1.Node) []string {
	list := []string{}
	for _, taint := range node.Spec.Taints {
		list = append(list, taint.Key+":"+string(taint.Effect))
	}
	return list
}

var unreachable = []string{corev1.TaintNodeUnreachable + ":NoSchedule", corev1.TaintNodeUnreachable + ":NoExecute"}

func TestSilentNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t)
		f.addNode("silent", corev1.ConditionTrue)
		f.addNode("alive", corev1.ConditionTrue)
		f.addPod("on-silent", "silent")
		f.addPod("on-alive", "alive")
		for range 5 {
			f.pass(10 * time.Second)
			f.renew("kube-node-lease", "alive")
			f.renew("elsewhere", "silent") // no node's lease
		}
		node := f.sync("silent")
		if c := node.Status.Conditions[0]; c.Status != corev1.ConditionUnknown || c.Reason != "NodeStatusUnknown" || c.Message != "Kubelet stopped posting node status." {
			t.Errorf("the silent node's condition Ready is %v", c)
		}
		if got := taintsOf(node); !slices.Equal(got, unreachable) {
			t.Errorf("the silent node has the taints %v, want %v", got, unreachable)
		}
		if node.Spec.Taints[1].TimeAdded == nil {
			t.Error("the taint does not tell since when it is there")
		}
		if got := f.podReady("on-silent"); got != corev1.ConditionFalse {
			t.Errorf("the silent node's pod is Ready=%s, want False", got)
		}
		if got := taintsOf(f.sync("alive")); len(got) != 0 {
			t.Errorf("the node that renewed its lease has the taints %v", got)
		}
		if got := f.podReady("on-alive"); got != corev1.ConditionTrue {
			t.Errorf("the other node's pod is Ready=%s, want True", got)
		}
		want := []string{
			"silent RegisteredNode: Node silent event: Registered Node silent in Controller",
			"alive RegisteredNode: Node alive event: Registered Node alive in Controller",
			"silent NodeNotReady: Node silent status is now: NodeNotReady",
			"on-silent NodeNotReady: Node is not ready",
		}
		if !slices.Equal(f.events, want) {
			t.Errorf("events %q, want %q", f.events, want)
		}

		// Back again.
		node = node.DeepCopy()
		node.Status.Conditions[0].Status, node.Status.Conditions[0].LastHeartbeatTime = corev1.ConditionTrue, metav1.Now()
		if _, err := f.api.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		f.sync("silent")
		f.pass(time.Second)
		if got := taintsOf(f.sync("silent")); len(got) != 0 {
			t.Errorf("the node that is well again has the taints %v", got)
		}
	})
}

func TestNodeThatSpeaksUpWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t)
		conflicts := 0
		f.api.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			conflicts++
			if conflicts == 1 {
				f.renew("kube-node-lease", "n") // it was only slow
			}
			return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "n", errors.New("changed"))
		})
		f.addNode("n", corev1.ConditionTrue)
		f.addNode("other", corev1.ConditionTrue)
		for range 5 {
			f.pass(10 * time.Second)
			f.renew("kube-node-lease", "other")
		}
		if conflicts != 1 {
			t.Errorf("%d attempts to write, want one that lost", conflicts)
		}
	})
}
