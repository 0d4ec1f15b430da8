package devices

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	testclock "k8s.io/utils/clock/testing"
)

const widget = "example.com/widget"

// patience is how long a test waits for what must come. Only a failure takes that long.
const patience = time.Minute

// testPlugin is a device plugin.
type testPlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	lists    chan []*pluginapi.Device
	answer   *pluginapi.ContainerAllocateResponse
	refuse   error
	prefer   []string
	mu       sync.Mutex
	prepared [][]string
	server   *grpc.Server
}

func (p *testPlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: p.prefer != nil}, nil
}

func (p *testPlugin) ListAndWatch(_ *pluginapi.Empty, s grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case list := <-p.lists:
			if err := s.Send(&pluginapi.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		}
	}
}

func (p *testPlugin) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	return &pluginapi.PreferredAllocationResponse{ContainerResponses: []*pluginapi.ContainerPreferredAllocationResponse{{DeviceIDs: p.prefer}}}, nil
}

func (p *testPlugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	if p.refuse != nil {
		return nil, p.refuse
	}
	answer := p.answer
	if answer == nil {
		answer = &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"WIDGETS": strings.Join(r.ContainerRequests[0].DevicesIds, ",")}}
	}
	return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{answer}}, nil
}

func (p *testPlugin) PreStartContainer(_ context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prepared = append(p.prepared, r.DevicesIds)
	return &pluginapi.PreStartContainerResponse{}, nil
}

// start serves the plugin in the folder until the test ends.
func (p *testPlugin) start(t *testing.T, dir string) {
	t.Helper()
	p.lists, p.server = make(chan []*pluginapi.Device), grpc.NewServer()
	listener, err := net.Listen("unix", filepath.Join(dir, "plugin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	pluginapi.RegisterDevicePluginServer(p.server, p)
	go func() { _ = p.server.Serve(listener) }()
	t.Cleanup(p.server.Stop)
}

func (p *testPlugin) list(ids ...string) {
	var all []*pluginapi.Device
	for _, id := range ids {
		name, sick := strings.CutPrefix(id, "!")
		health := pluginapi.Healthy
		if sick {
			health = pluginapi.Unhealthy
		}
		all = append(all, &pluginapi.Device{ID: name, Health: health})
	}
	p.lists <- all
}

// bench is a manager that runs.
type bench struct {
	*Manager
	t       *testing.T
	clock   *testclock.FakeClock
	changed chan struct{}
	stop    func()
}

func newBench(t *testing.T, dir string) *bench {
	t.Helper()
	b := &bench{t: t, clock: testclock.NewFakeClock(time.Unix(1_700_000_000, 0)), changed: make(chan struct{}, 100)}
	b.Manager = New(Config{Dir: dir, Clock: b.clock, Changed: func() { b.changed <- struct{}{} }, CDI: func(context.Context) (bool, error) { return false, nil }})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(b.stop)
	if b.register("", "", "") == nil { // answered once the sockets of earlier plugins are gone
		t.Error("a plugin without a name was taken")
	}
	return b
}

// register has a plugin register as plugins do, as soon as the manager listens.
func (b *bench) register(version, endpoint, resource string) error {
	b.t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(b.cfg.Dir, socketName), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{Version: version, Endpoint: endpoint, ResourceName: resource},
		grpc.WaitForReady(true))
	return err
}

// with starts a plugin that lists devices, and waits until they are known.
func (b *bench) with(p *testPlugin, ids ...string) {
	b.t.Helper()
	p.start(b.t, b.cfg.Dir)
	if err := b.register(pluginapi.Version, "plugin.sock", widget); err != nil {
		b.t.Fatal(err)
	}
	p.list(ids...)
	b.awaitChange()
}

func (b *bench) awaitChange() {
	b.t.Helper()
	select {
	case <-b.changed:
	case <-time.After(patience):
		b.t.Fatal("the node was not told that its resources changed")
	}
}

func (b *bench) totals(capacity, allocatable string) {
	b.t.Helper()
	c, a := b.Totals()
	if c.Name(widget, resource.DecimalSI).String() != capacity || a.Name(widget, resource.DecimalSI).String() != allocatable {
		b.t.Errorf("the node has %v and pods can have %v, want %s and %s", c, a, capacity, allocatable)
	}
}

func podOf(uid string, amount string) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{widget: resource.MustParse(amount)}}}}}}
	pod.UID = types.UID(uid)
	return pod
}

func TestAPodsDevices(t *testing.T) {
	b := newBench(t, t.TempDir())
	p := &testPlugin{prefer: []string{"w1"}}
	b.with(p, "w0", "w1", "!w2")
	b.totals("3", "2")
	pod := podOf("one", "1")
	if err := b.Admit(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	options, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0])
	if err != nil || fmt.Sprint(options.Env) != "[{WIDGETS w1}]" {
		t.Errorf("the container gets %+v, %v; want the device that its plugin prefers", options, err)
	}
	if len(p.prepared) != 1 || !slices.Equal(p.prepared[0], []string{"w1"}) {
		t.Errorf("prepared were %v, want w1 once", p.prepared)
	}
	if held, healthy := fmt.Sprint(b.Held("one")), fmt.Sprint(b.Healthy()); held != "[{main example.com/widget w1 []}]" ||
		healthy != "[{ example.com/widget w0 []} { example.com/widget w1 []}]" {
		t.Errorf("told are %s and %s", held, healthy)
	}
	err = b.Admit(t.Context(), podOf("two", "2"))
	if fmt.Sprint(err) != "requested number of devices unavailable for example.com/widget. Requested: 2, Available: 1" {
		t.Errorf("a pod that wants too much: %v", err)
	}
	p.refuse = errors.New("broken glass")
	if err := b.Admit(t.Context(), podOf("two", "1")); err == nil || !strings.Contains(err.Error(), "broken glass") {
		t.Errorf("the plugin refuses: %v", err)
	}
	p.refuse = nil
	b.Free("one")
	if err := b.Admit(t.Context(), podOf("two", "2")); err != nil {
		t.Errorf("what a refused and an ended pod had is not free: %v", err)
	}
}

// The pod came before its resource was a device plugin's, so its container asks when it starts.
func TestAContainerNeverStartsWithoutItsDevices(t *testing.T) {
	b := newBench(t, t.TempDir())
	p := &testPlugin{refuse: errors.New("broken glass")}
	b.with(p, "w0")
	pod := podOf("one", "1")
	for range 2 {
		if options, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); err == nil || !strings.Contains(err.Error(), "broken glass") {
			t.Fatalf("the plugin refuses, and the container gets %+v, %v", options, err)
		}
	}
	if held := b.Held("one"); len(held) != 0 {
		t.Errorf("the pod has %v, which it was refused", held)
	}
	p.refuse = nil
	if err := os.Remove(b.checkpointPath()); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(b.checkpointPath(), 0o700); err != nil { // nothing can be saved
		t.Fatal(err)
	}
	for range 2 {
		if _, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); err == nil || !strings.Contains(err.Error(), "write down which devices pods have") {
			t.Fatalf("a container that nobody will know to have its devices: %v", err)
		}
	}
	if err := os.Remove(b.checkpointPath()); err != nil {
		t.Fatal(err)
	}
	if options, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); err != nil || fmt.Sprint(options.Env) != "[{WIDGETS w0}]" {
		t.Errorf("the container gets %+v, %v", options, err)
	}
	if saved, err := os.ReadFile(b.checkpointPath()); err != nil || !strings.Contains(string(saved), `"PodUID":"one"`) {
		t.Errorf("saved is %s, %v", saved, err)
	}
}

func TestThePluginGoesAway(t *testing.T) {
	b := newBench(t, t.TempDir())
	p := &testPlugin{}
	b.with(p, "w0", "w1")
	p.server.Stop()
	b.awaitChange()
	b.totals("2", "0")
	b.clock.SetTime(b.clock.Now().Add(5 * time.Minute))
	b.totals("0", "0")
	if err := os.Remove(filepath.Join(b.cfg.Dir, "plugin.sock")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	b.with(&testPlugin{}, "w0")
	b.totals("1", "1")
}

func TestTheAgentStartsAnew(t *testing.T) {
	dir := t.TempDir()
	first := newBench(t, dir)
	if !first.Forgot() {
		t.Error("a node without a checkpoint knows its devices")
	}
	first.Remember()
	if New(first.cfg).Forgot() {
		t.Error("it is not remembered that what was forgotten was told")
	}
	first.with(&testPlugin{}, "w0", "w1")
	pod := podOf("one", "1")
	if err := first.Admit(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	first.stop()

	b := newBench(t, dir)
	b.totals("0", "0")
	if err := b.Admit(t.Context(), podOf("two", "1")); fmt.Sprint(err) != "cannot allocate unregistered device example.com/widget" {
		t.Errorf("a pod that comes before its plugin: %v", err)
	}
	if _, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); fmt.Sprint(err) != "the device plugin of example.com/widget has not registered yet" {
		t.Errorf("a container that starts before its plugin: %v", err)
	}
	p := &testPlugin{}
	b.with(p, "w0", "w1")
	if options, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); err != nil || fmt.Sprint(options.Env) != "[{WIDGETS w0}]" || len(p.prepared) != 1 {
		t.Errorf("the container gets %v, %v, and prepared were %v; want what it had", options, err, p.prepared)
	}
	if _, err := os.Stat(filepath.Join(dir, socketName)); err != nil {
		t.Error(err)
	}
	two := podOf("two", "1")
	if err := b.Admit(t.Context(), two); err != nil {
		t.Fatal(err)
	}
	if options, err := b.Container(t.Context(), two, &two.Spec.Containers[0]); err != nil || fmt.Sprint(options.Env) != "[{WIDGETS w1}]" {
		t.Errorf("the second pod gets %v, %v; want the device that the first one does not have", options, err)
	}
	b.Sweep(func(uid types.UID) bool { return uid == "two" })
	if err := b.Admit(t.Context(), podOf("three", "1")); err != nil {
		t.Errorf("what a pod had that is no more is not free: %v", err)
	}
}

func TestABrokenCheckpointStays(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "no JSON": "{", "changed": `{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, checkpointName)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			b := newBench(t, dir)
			b.Remember()
			if !b.Forgot() {
				t.Error("the devices of before are known")
			}
			pod := podOf("one", "1")
			_, starting := b.Container(t.Context(), pod, &pod.Spec.Containers[0])
			for what, err := range map[string]error{
				"the node": b.Problem(), "a plugin": b.register(pluginapi.Version, "plugin.sock", widget), "a pod": b.Admit(t.Context(), pod), "a container": starting,
			} {
				if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move the file away") {
					t.Errorf("%s is told %v", what, err)
				}
			}
			b.stop()
			if after, err := os.ReadFile(path); err != nil || string(after) != content {
				t.Errorf("the file is %q now, %v", after, err)
			}
		})
	}
}

func TestPluginsThatAreRefused(t *testing.T) {
	b := newBench(t, t.TempDir())
	for _, tc := range []struct{ version, endpoint, resource, want string }{
		{"v1alpha", "plugin.sock", widget, `requested API version ["v1alpha"] is not supported by kubelet. Supported version is ["v1beta1"]`},
		{pluginapi.Version, "plugin.sock", "memory", `the ResourceName "memory" is invalid`},
		{pluginapi.Version, "plugin.sock", "example.com/a b", `the ResourceName "example.com/a b" is invalid`},
		{pluginapi.Version, "../plugin.sock", widget, "is not the name of a socket"},
		{pluginapi.Version, "nobody.sock", widget, "ask the device plugin of example.com/widget"},
	} {
		if err := b.register(tc.version, tc.endpoint, tc.resource); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func TestWhatPluginsSayIsTakenTogether(t *testing.T) {
	b := newBench(t, t.TempDir())
	p := &testPlugin{answer: &pluginapi.ContainerAllocateResponse{
		Envs: map[string]string{"B": "2", "A": "1"}, Annotations: map[string]string{"x": "y"},
		Mounts:     []*pluginapi.Mount{{ContainerPath: "/c", HostPath: "/h", ReadOnly: true}},
		Devices:    []*pluginapi.DeviceSpec{{ContainerPath: "/dev/w", HostPath: "/dev/null", Permissions: "rw"}},
		CdiDevices: []*pluginapi.CDIDevice{{Name: "example.com/widget=w0"}},
	}}
	b.with(p, "w0", "w1")
	pod := podOf("one", "1")
	if err := b.Admit(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	got, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0])
	const want = "{[{A 1} {B 2}] map[x:y] [{/c /h true}] [{/dev/w /dev/null rw}] [example.com/widget=w0]}"
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v, want %s", got, err, want)
	}
	p.answer = &pluginapi.ContainerAllocateResponse{CdiDevices: p.answer.CdiDevices}
	pod = podOf("two", "1")
	if err := b.Admit(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); err == nil || !strings.Contains(err.Error(), "containerd does from version 1.7 on") {
		t.Errorf("devices that the runtime would leave out: %v", err)
	}
}
