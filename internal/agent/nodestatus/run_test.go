package nodestatus

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
)

// station is a reporter whose runtime and server are under control.
type station struct {
	client   *fake.Clientset
	recorder *record.FakeRecorder
	reporter *Reporter
	cancel   context.CancelFunc
	done     chan error

	mu      sync.Mutex
	runtime Runtime
	err     error
}

func (s *station) set(runtime Runtime, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runtime, s.err = runtime, err
}

// start runs a reporter; use it in a synctest bubble.
func start(t *testing.T, root, dataDir string, existing ...runtime.Object) *station {
	t.Helper()
	s := &station{client: fake.NewClientset(existing...), recorder: record.NewFakeRecorder(100), done: make(chan error, 1),
		runtime: goodReady}
	cfg := testConfig()
	cfg.Client, cfg.Recorder, cfg.Root, cfg.DataDir = s.client, s.recorder, root, dataDir
	cfg.Labels = map[string]string{"rack": "7"}
	cfg.Taints = []corev1.Taint{{Key: "new", Effect: corev1.TaintEffectNoSchedule}}
	cfg.Thresholds = nil
	cfg.Runtime = func(context.Context) (Runtime, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.runtime, s.err
	}
	var err error
	s.reporter, err = New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *station) run(t *testing.T) {
	t.Helper()
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	go func() { s.done <- s.reporter.Run(ctx) }()
}

func (s *station) stop(t *testing.T) {
	t.Helper()
	s.cancel()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
}

func (s *station) node(t *testing.T) *corev1.Node {
	t.Helper()
	synctest.Wait()
	node, err := s.client.CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func (s *station) writes() int {
	count := 0
	for _, action := range s.client.Actions() {
		if action.GetResource().Resource == "nodes" && action.GetVerb() == "update" {
			count++
		}
	}
	return count
}

func (s *station) events() []string {
	var list []string
	for len(s.recorder.Events) > 0 {
		list = append(list, <-s.recorder.Events)
	}
	return list
}

func TestRun(t *testing.T) {
	root, dataDir := tree(t, nil), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, root, dataDir)
		s.set(Runtime{}, errors.New("refused"))
		s.run(t)
		node := s.node(t)
		if node.Labels["kubernetes.io/hostname"] != "n1" || node.Labels["kubernetes.io/os"] != "linux" ||
			node.Labels["kubernetes.io/arch"] == "" || node.Labels["rack"] != "7" {
			t.Errorf("labels %v", node.Labels)
		}
		if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "new" {
			t.Errorf("taints %v", node.Spec.Taints)
		}
		ready := conditionOf(node.Status, corev1.NodeReady)
		if ready.Status != corev1.ConditionFalse || ready.Message != "container runtime is down: refused" {
			t.Errorf("without a runtime: %+v", ready)
		}
		lease, err := s.client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil || *lease.Spec.LeaseDurationSeconds != 40 || *lease.Spec.HolderIdentity != "n1" ||
			len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].Kind != "Node" {
			t.Fatalf("lease %+v, %v", lease, err)
		}

		// Unready, it looks every second.
		s.set(goodReady, nil)
		time.Sleep(1100 * time.Millisecond)
		node = s.node(t)
		if ready := conditionOf(node.Status, corev1.NodeReady); ready.Status != corev1.ConditionTrue {
			t.Errorf("a second after the runtime came: %+v", ready)
		}
		if got := s.events(); !slices.Contains(got, "Normal Starting Starting kubelet.") ||
			!slices.Contains(got, "Normal NodeReady Node n1 status is now: NodeReady") {
			t.Errorf("events %q", got)
		}

		// Ready and unchanged, it writes once in five minutes, and the lease is renewed.
		before := s.writes()
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if got := s.writes() - before; got != 0 {
			t.Errorf("%d writes with nothing new", got)
		}
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if got := s.writes() - before; got != 1 {
			t.Errorf("%d writes after five minutes, want one", got)
		}
		renewed, err := s.client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), "n1", metav1.GetOptions{})
		if age := time.Since(renewed.Spec.RenewTime.Time); err != nil || age > 12*time.Second {
			t.Errorf("the lease is %v old, %v", age, err)
		}

		// Check makes a change known at once.
		s.set(Runtime{Name: "containerd", Version: "2.1.0", Ready: Condition{OK: true},
			NetworkReady: Condition{Reason: "R", Message: "m"}}, nil)
		s.reporter.Check()
		ready = conditionOf(s.node(t).Status, corev1.NodeReady)
		if ready.Status != corev1.ConditionFalse || !strings.Contains(ready.Message, "network not ready") {
			t.Errorf("after Check: %+v", ready)
		}
		s.stop(t)
	})
}

func TestExistingNode(t *testing.T) {
	root, dataDir := tree(t, nil), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, root, dataDir, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"mine": "kept", "rack": "6"}},
			Spec:       corev1.NodeSpec{Unschedulable: true, PodCIDR: "10.244.3.0/24"},
			Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "another"}},
		})
		// Somebody else writes at the same time, twice.
		conflicts := 2
		s.client.PrependReactor("update", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetSubresource() != "status" || conflicts == 0 {
				return false, nil, nil
			}
			conflicts--
			return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "n1", errors.New("changed"))
		})
		s.run(t)
		node := s.node(t)
		if node.Labels["mine"] != "kept" || node.Labels["rack"] != "7" || len(node.Spec.Taints) != 0 ||
			!node.Spec.Unschedulable || node.Spec.PodCIDR == "" {
			t.Errorf("labels %v, spec %+v", node.Labels, node.Spec)
		}
		if ready := conditionOf(node.Status, corev1.NodeReady); ready.Status != corev1.ConditionTrue || conflicts != 0 {
			t.Errorf("after conflicts: %+v", ready)
		}
		if got := s.events(); !slices.Contains(got, "Warning Rebooted Node n1 has been rebooted, boot id: b-o-o-t") {
			t.Errorf("events %q", got)
		}
		s.stop(t)
	})
}

// TestWatchedNode has a watch show the Node: nothing is asked of the server as long as there is nothing to say, and what
// the watch has not seen yet is no harm.
func TestWatchedNode(t *testing.T) {
	root, dataDir := tree(t, nil), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, root, dataDir)
		var watched atomic.Pointer[corev1.Node]
		s.reporter.cfg.Node = watched.Load
		s.client.PrependReactor("update", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			sent := action.(clienttesting.UpdateAction).GetObject().(*corev1.Node)
			switch {
			case action.GetSubresource() != "status":
			case sent.ResourceVersion == "old":
				return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "n1", errors.New("changed"))
			case sent.ResourceVersion == "of other taints":
				why := errors.New("not allowed to modify taints")
				return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "n1", why)
			}
			return false, nil, nil
		})
		s.run(t)
		watched.Store(s.node(t).DeepCopy())
		requests := func() (n int) {
			for _, action := range s.client.Actions() {
				if action.GetResource().Resource == "nodes" {
					n++
				}
			}
			return n
		}
		before := requests()
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		if got := requests() - before; got != 0 {
			t.Errorf("%d requests about the Node with nothing new", got)
		}

		var kept *corev1.Node
		for i, version := range []string{"old", "of other taints"} {
			networks := i == 1
			stale := watched.Load().DeepCopy()
			stale.ResourceVersion, stale.Status.Conditions = version, nil
			watched.Store(stale)
			kept = stale.DeepCopy()
			s.set(Runtime{Name: "containerd", Version: "2.1.0", Ready: Condition{OK: true},
				NetworkReady: Condition{OK: networks, Reason: "R", Message: "m"}}, nil)
			s.reporter.Check()
			if is := conditionOf(s.node(t).Status, corev1.NodeReady).Status == corev1.ConditionTrue; is != networks {
				t.Errorf("with a watch that is behind (%s): ready is %v", version, is)
			}
		}
		if !equality.Semantic.DeepEqual(watched.Load(), kept) {
			t.Error("what the watch shows was changed")
		}

		// Of a Node that the watch does not show, the server is asked.
		watched.Store(nil)
		before = requests()
		s.reporter.Check()
		synctest.Wait()
		if requests() == before {
			t.Error("nobody asked the server about a Node that no watch shows")
		}
		s.stop(t)
	})
}

func TestServerIsAway(t *testing.T) {
	root, dataDir := tree(t, nil), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, root, dataDir)
		away := true
		var mu sync.Mutex
		s.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			mu.Lock()
			defer mu.Unlock()
			return away, nil, errors.New("connection refused")
		})
		s.run(t)
		time.Sleep(time.Minute)
		mu.Lock()
		away = false
		mu.Unlock()
		time.Sleep(10 * time.Second)
		if ready := conditionOf(s.node(t).Status, corev1.NodeReady); ready.Status != corev1.ConditionTrue {
			t.Errorf("after the server came back: %+v", ready)
		}
		// A deleted Node stays deleted.
		if err := s.client.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if _, err := s.client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the deleted node is there again: %v", err)
		}
		s.stop(t)
	})
}

// A Node that is missing because the control plane was restored from an older backup is made again; one that somebody has
// deleted is not, and one that it cannot tell of waits.
func TestNodeAfterARestore(t *testing.T) {
	root, dataDir := tree(t, nil), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, root, dataDir)
		var mu sync.Mutex // guards all of these
		var restored bool
		var refused error
		asked, again, settled, making := 0, 0, 0, 0
		set := func(is bool, why error) {
			mu.Lock()
			defer mu.Unlock()
			restored, refused = is, why
		}
		told := func() (timesAsked, timesAgain, timesSettled int) {
			mu.Lock()
			defer mu.Unlock()
			return asked, again, settled
		}
		s.reporter.cfg.Restored = func(context.Context) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return restored, refused
		}
		s.reporter.cfg.Making = func(context.Context) error {
			_, err := s.client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				t.Errorf("told of the Node after it was made: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			making++
			if making == 1 {
				return errors.New("the disk is full")
			}
			return nil
		}
		s.reporter.cfg.Settled = func(_ context.Context, made bool) {
			mu.Lock()
			defer mu.Unlock()
			settled++
			if restored = false; made {
				again++
			}
		}
		remove := func() {
			t.Helper()
			if err := s.client.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		// While the agent was away: it makes the Node when it starts.
		set(true, nil)
		s.run(t)
		time.Sleep(300 * time.Millisecond) // until it is tried again
		s.node(t)
		if _, again, settled := told(); again != 1 || settled != 1 {
			t.Errorf("after a restore while the agent was away it was told %d times that the Node is there, "+
				"%d times that it was made again", settled, again)
		}
		mu.Lock()
		if making != 2 {
			t.Errorf("it was told %d times that the Node would be made", making)
		}
		mu.Unlock()
		remove()
		set(false, errors.New("the server is away"))
		time.Sleep(time.Minute)
		if _, err := s.client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("while nobody can be asked: %v", err)
		}
		if asked, _, _ := told(); asked < 3 {
			t.Errorf("while nobody can be asked it asked %d times", asked)
		}
		set(true, nil)
		time.Sleep(time.Minute)
		ready := conditionOf(s.node(t).Status, corev1.NodeReady)
		if _, again, _ := told(); ready.Status != corev1.ConditionTrue || again != 2 {
			t.Errorf("after a restore: %+v, made again %d times", ready, again)
		}
		remove()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		_, err := s.client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if _, again, _ := told(); !apierrors.IsNotFound(err) || again != 2 {
			t.Errorf("a node that was deleted is there again: %v, made again %d times", err, again)
		}
		s.stop(t)
	})
}

func TestNewChecksItsConfig(t *testing.T) {
	runtime := func(context.Context) (Runtime, error) { return goodReady, nil }
	for name, cfg := range map[string]Config{
		"no name":      {Client: fake.NewClientset(), Runtime: runtime, DataDir: "/"},
		"no client":    {NodeName: "n", Runtime: runtime, DataDir: "/"},
		"no runtime":   {NodeName: "n", Client: fake.NewClientset(), DataDir: "/"},
		"no directory": {NodeName: "n", Client: fake.NewClientset(), Runtime: runtime},
	} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDevicesOfAForgottenLifeAreResetOnce(t *testing.T) {
	root, dataDir := tree(t, nil), t.TempDir()
	const widget = "example.com/widget"
	for _, forgotten := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
				Capacity:    corev1.ResourceList{widget: resource.MustParse("4")},
				Allocatable: corev1.ResourceList{widget: resource.MustParse("4")}}}
			s, told := start(t, root, dataDir, node), 0
			s.reporter.cfg.DevicesForgotten, s.reporter.cfg.DevicesReset = forgotten, func() { told++ }
			check := func(when, want string, wantTold int) {
				t.Helper()
				status := s.node(t).Status
				c, a := status.Capacity[widget], status.Allocatable[widget]
				if c.String() != want || a.String() != want || told != wantTold {
					t.Errorf("forgotten %t, %s: %s and %s, told %d times; want %s, %d times", forgotten, when, &c, &a, told,
						want, wantTold)
				}
			}
			s.run(t)
			if forgotten {
				check("at first", "0", 1)
			} else {
				check("at first", "4", 0)
			}
			node = s.node(t).DeepCopy()
			node.Status.Capacity[widget] = resource.MustParse("7")
			if _, err := s.client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * lookEvery)
			if forgotten {
				check("after somebody said so by hand", "7", 1)
			} else {
				check("after somebody said so by hand", "7", 0)
			}
			s.stop(t)
		})
	}
}

// An agent that is unwell, such as one whose runtime hangs, says of its node that it is not ready.
func TestUnwellAgentIsNotReady(t *testing.T) {
	root, dataDir := tree(t, nil), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, root, dataDir)
		var unwell atomic.Bool
		s.reporter.cfg.Healthy = func() error {
			if unwell.Load() {
				return errors.New("the runtime was not looked through for 3m")
			}
			return nil
		}
		s.run(t)
		for _, is := range []bool{false, true, false} {
			unwell.Store(is)
			s.reporter.Check()
			got := conditionOf(s.node(t).Status, corev1.NodeReady)
			if (got.Status != corev1.ConditionTrue) != is || strings.Contains(got.Message, "looked through") != is {
				t.Errorf("unwell: %v; the node says %+v", is, got)
			}
		}
		s.stop(t)
	})
}

// Who waits for the end of a shutdown can tell whether the server knows of it, and the next agent takes it back.
func TestAShutdownIsToldAndTakenBack(t *testing.T) {
	root, dataDir := tree(t, nil), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, root, dataDir)
		var away atomic.Bool
		s.client.PrependReactor("update", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away.Load(), nil, errors.New("connection refused")
		})
		s.run(t)
		s.node(t)
		if s.reporter.ShutDownIsKnown() {
			t.Error("a shutdown is known before there is one")
		}
		away.Store(true)
		s.reporter.ShutDown()
		s.node(t)
		if s.reporter.ShutDownIsKnown() {
			t.Error("a server that does not answer knows of the shutdown")
		}
		away.Store(false)
		time.Sleep(time.Minute)
		got := conditionOf(s.node(t).Status, corev1.NodeGracefulNodeShutdownInProgress)
		if got.Status != corev1.ConditionTrue || !s.reporter.ShutDownIsKnown() {
			t.Errorf("the node says %+v, known: %v", got, s.reporter.ShutDownIsKnown())
		}
		s.stop(t)
		next := start(t, root, dataDir)
		next.client, next.reporter.cfg.Client = s.client, s.client
		next.run(t)
		time.Sleep(time.Minute)
		got = conditionOf(next.node(t).Status, corev1.NodeGracefulNodeShutdownInProgress)
		if got.Status != corev1.ConditionFalse {
			t.Errorf("after the next start the node says %+v", got)
		}
		next.stop(t)
	})
}
