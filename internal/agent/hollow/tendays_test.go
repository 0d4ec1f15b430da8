package hollow_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/events"
	"github.com/everynode/everynode/internal/agent/hollow"
	"github.com/everynode/everynode/internal/agent/nodestatus"
	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/probes"
	"github.com/everynode/everynode/internal/agent/status"
)

var days = flag.Int("days", 1, "how many days the node is alone; each takes some seconds")

// TestTenDaysAlone leaves a node without any server for days, by the clock of a bubble. A pod that is well runs on in the
// container that it had, one that fails is started again and again, and neither memory nor goroutines nor files nor what
// the runtime holds grows: images that nobody uses go from a disk that is full of them, and logs are rotated. When the
// server is back, it learns within minutes how all are.
func TestTenDaysAlone(t *testing.T) {
	dataDir := t.TempDir()
	written := &lines{}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	klog.SetOutputBySeverity("INFO", written) // which has the lines of all severities
	defer klog.LogToStderr(true)
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, dataDir)
		steady, failing := n.add(t, "steady"), n.add(t, "failing")
		n.pods.APIListed()
		n.live(time.Hour, nil)
		first := n.running(t, steady)
		if got := n.status(t, steady); got.Phase != corev1.PodRunning {
			t.Fatalf("before, the pod is %s", got.Phase)
		}

		n.away.Store(true)
		for i := range 17 {
			n.disk.pull(fmt.Sprint("left behind ", i), 5) // 95 % with that of the daemons
		}
		alone := 0
		fails := func() {
			alone++
			n.disk.minute(t, alone)
			if alone > 10 {
				n.disk.check(t)
			}
			if id := n.running(t, failing); id != "" && alone%4 == 0 { // it has written a while
				podstest.Must(t, n.disk.StopContainer(t.Context(), id, 0))
			}
		}
		n.live(8*time.Hour, fails) // Until the queue of events is full.
		before := n.size(t)
		written.count.Store(0)
		n.tries.Store(0)
		hours := *days*24 - 8
		n.live(time.Duration(hours)*time.Hour, fails)
		after := n.size(t)
		t.Logf("after 8 hours %+v, after %d days %+v; %d requests and %d lines", before, *days, after, n.tries.Load(), written.count.Load())
		if after.heap > before.heap+1<<20 || after.goroutines > before.goroutines+2 || after.files > before.files+2 {
			t.Errorf("after 8 hours %+v, after %d days %+v", before, *days, after)
		}
		if tries := n.tries.Load(); int(tries) > hours*3600/2 {
			t.Errorf("the server was asked %d times, want less than every other second", tries)
		}
		if got := written.count.Load(); int(got) > hours*60 {
			t.Errorf("%d lines are logged, want less than one a minute", got)
		}
		if n.disk.reopened < hours*60 || n.disk.removed < hours/2 {
			t.Errorf("%d logs were rotated and %d images removed", n.disk.reopened, n.disk.removed)
		}
		for uid, most := range map[types.UID]int{steady: 1, failing: 2} {
			held, err := n.disk.Observe(t.Context(), uid)
			podstest.Must(t, err)
			if len(held.Sandboxes) != 1 || len(held.Containers) > most {
				t.Errorf("pod %s has %d sandboxes and %d containers", uid, len(held.Sandboxes), len(held.Containers))
			}
		}
		if now := n.running(t, steady); now != first {
			t.Errorf("the container of the pod that is well was %s and is %s", first, now)
		}

		n.away.Store(false)
		n.live(10*time.Minute, nil)
		for uid, restarts := range map[types.UID]int32{steady: 0, failing: int32(*days) * 150} {
			got := n.status(t, uid)
			if got.Phase != corev1.PodRunning || len(got.ContainerStatuses) != 1 || got.ContainerStatuses[0].RestartCount < restarts {
				t.Errorf("the server says of pod %s: %+v", uid, got)
			}
		}
		n.checkNode(t)
		n.stop()
	})
}

// lines counts what is logged.
type lines struct{ count atomic.Int32 }

func (l *lines) Write(p []byte) (int, error) {
	l.count.Add(1)
	return len(p), nil
}

// aloneNode is an agent's parts that need no machine, and a server in memory that may be away.
type aloneNode struct {
	client  *fake.Clientset
	away    atomic.Bool
	tries   atomic.Int32
	disk    *disk
	pods    *pods.Manager
	dataDir string
	stop    func()
}

func startNode(t *testing.T, dataDir string) *aloneNode {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	clk := clock.RealClock{}
	held := newDisk(t, filepath.Join(dataDir, "disk"))
	n := &aloneNode{client: fake.NewClientset(), disk: held, dataDir: dataDir}
	n.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, apiruntime.Object, error) {
		n.tries.Add(1)
		if !n.away.Load() {
			return false, nil, nil
		}
		return true, nil, &url.Error{Op: "Get", URL: "https://10.0.0.1:6443",
			Err: errors.New("dial tcp 10.0.0.1:6443: connect: network is unreachable")}
	})
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: events.Source, Host: "n1"})
	broadcaster.StartRecordingToSink(events.Sink{Context: ctx, Clock: clk,
		EventSink: &typedcorev1.EventSinkImpl{Interface: n.client.CoreV1().Events("")}})
	ready := nodestatus.Condition{OK: true}
	reporter, err := nodestatus.New(nodestatus.Config{NodeName: "n1", Client: n.client, Recorder: recorder, DataDir: dataDir,
		NodeIPs: func() []net.IP { return []net.IP{net.IPv4(10, 0, 0, 7)} }, KubeletVersion: "v0.0.0", KubeletPort: 10250,
		Runtime: func(context.Context) (nodestatus.Runtime, error) {
			return nodestatus.Runtime{Name: "hollow", Version: "v0.0.0", Ready: ready, NetworkReady: ready}, nil
		}})
	podstest.Must(t, err)
	statuses := status.New(status.APIWriter{Client: n.client})
	heard := events.Recorder{EventRecorder: recorder}
	n.pods = pods.New(ctx, pods.Config{
		Runtime: n.disk, Devices: hollow.NoDevices{}, Claims: hollow.NoClaims{}, Images: hollow.AllImages{},
		Volumes: &podstest.Volumes{}, Statuses: statuses, Events: heard, Env: noEnv, Clock: clk,
		HostIPs: func() []string { return []string{"10.0.0.7"} }, Node: func() *corev1.Node { return &corev1.Node{} },
		Prober: pods.Probes{Manager: probes.New(probes.Config{Clock: clk, OnEvent: heard.Container, Version: "v0.0.0",
			Exec: func(context.Context, string, []string, time.Duration) ([]byte, []byte, int32, error) {
				return nil, nil, 0, nil
			},
			OnChange: func(uid types.UID) { n.pods.ProbeChanged(uid) },
		})},
	})
	n.disk.Changed = n.pods.RuntimeChanged
	ended := make(chan struct{}, 5)
	for _, run := range []func(){
		func() { statuses.Run(ctx) }, func() { n.disk.Watch(ctx, n.pods) }, func() { _ = reporter.Run(ctx) },
		func() { held.logs.Rotate(ctx) }, func() { held.collector().Run(ctx) },
	} {
		go func() { run(); ended <- struct{}{} }()
	}
	n.stop = func() {
		cancel()
		for range cap(ended) {
			<-ended
		}
		n.pods.Wait(ctx)
		broadcaster.Shutdown()
	}
	return n
}

func noEnv(context.Context, *corev1.Pod, *corev1.Container, []string) ([]env.Var, error) {
	return nil, nil
}

// add has the server, and the node, have a pod.
func (n *aloneNode) add(t *testing.T, name string) types.UID {
	t.Helper()
	pod := podstest.Pod(name)
	pod.Spec.NodeName = "n1"
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1,
		FailureThreshold: 3, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	_, err := n.client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	podstest.Must(t, err)
	n.pods.PodChanged(pod)
	return pod.UID
}

// live lets time pass, and calls each every minute.
func (n *aloneNode) live(long time.Duration, each func()) {
	for range long / time.Minute {
		time.Sleep(time.Minute)
		if each != nil {
			each()
		}
		n.client.ClearActions()
	}
	synctest.Wait()
}

// running is the container of a pod that runs, empty for none.
func (n *aloneNode) running(t *testing.T, uid types.UID) string {
	t.Helper()
	held, err := n.disk.Observe(t.Context(), uid)
	podstest.Must(t, err)
	for _, c := range held.Containers {
		if c.State == podworker.Running {
			return c.ID
		}
	}
	return ""
}

// status is what the server knows of a pod.
func (n *aloneNode) status(t *testing.T, uid types.UID) corev1.PodStatus {
	t.Helper()
	list, err := n.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	podstest.Must(t, err)
	for _, pod := range list.Items {
		if pod.UID == uid {
			return pod.Status
		}
	}
	t.Fatal("the server has no such pod")
	return corev1.PodStatus{}
}

// checkNode fails if the server does not know that the node is well now.
func (n *aloneNode) checkNode(t *testing.T) {
	t.Helper()
	node, err := n.client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	podstest.Must(t, err)
	lease, err := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "n1", metav1.GetOptions{})
	podstest.Must(t, err)
	if since := time.Since(lease.Spec.RenewTime.Time); since > time.Minute {
		t.Errorf("the lease was renewed %s ago", since)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionTrue || time.Since(c.LastHeartbeatTime.Time) > 10*time.Minute) {
			t.Errorf("the node is %+v", c)
		}
	}
	told, err := n.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	podstest.Must(t, err)
	if len(told.Items) == 0 || len(told.Items) > 2000 {
		t.Errorf("the server was told of %d events", len(told.Items))
	}
}

type size struct {
	heap       uint64
	goroutines int
	files      int
}

// String shows the size for people.
func (s size) String() string {
	return fmt.Sprintf("%d KB, %d goroutines, %d files", s.heap>>10, s.goroutines, s.files)
}

func (n *aloneNode) size(t *testing.T) size {
	t.Helper()
	synctest.Wait()
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return size{m.HeapAlloc, runtime.NumGoroutine(), files(t, n.dataDir)}
}
