package claims

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	testclock "k8s.io/utils/clock/testing"
)

// driver notes what it is asked, and refuses what it is told to.
type driver struct {
	draapi.UnimplementedDRAPluginServer
	mu     sync.Mutex
	asked  []string
	refuse string
	// beside, if set, runs while the driver prepares.
	beside func()
}

func (d *driver) calls() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.asked = nil }()
	return strings.Join(d.asked, ", ")
}

func (d *driver) say(refuse string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refuse = refuse
}

func (d *driver) NodePrepareResources(_ context.Context, r *draapi.NodePrepareResourcesRequest) (*draapi.NodePrepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &draapi.NodePrepareResourcesResponse{Claims: map[string]*draapi.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		d.asked = append(d.asked, "prepare "+c.Namespace+"/"+c.Name)
		out.Claims[c.Uid] = &draapi.NodePrepareResourceResponse{Error: d.refuse, Devices: []*draapi.Device{
			{RequestNames: []string{"a"}, PoolName: "n", DeviceName: "gpu-0", CdiDeviceIds: []string{"x.com/gpu=" + c.Name + "-a"}},
			{RequestNames: []string{"b/small"}, PoolName: "n", DeviceName: "gpu-1", CdiDeviceIds: []string{"x.com/gpu=" + c.Name + "-b"}},
			{PoolName: "n", DeviceName: "all", CdiDeviceIds: []string{"x.com/gpu=all"}},
		}}
	}
	if d.beside != nil {
		d.beside()
	}
	return out, nil
}

func (d *driver) NodeUnprepareResources(_ context.Context, r *draapi.NodeUnprepareResourcesRequest) (*draapi.NodeUnprepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &draapi.NodeUnprepareResourcesResponse{Claims: map[string]*draapi.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		d.asked = append(d.asked, "unprepare "+c.Namespace+"/"+c.Name)
		out.Claims[c.Uid] = &draapi.NodeUnprepareResourceResponse{Error: d.refuse}
	}
	return out, nil
}

// world is a node with a driver, and the claims of the API.
type world struct {
	*driver
	socket string
	claims map[string]*resourcev1.ResourceClaim
	config Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{driver: &driver{}, socket: filepath.Join(dir, "dra.sock"), claims: map[string]*resourcev1.ResourceClaim{}}
	listener, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	draapi.RegisterDRAPluginServer(server, w)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	w.config = Config{
		File: filepath.Join(dir, "state", "claims.json"),
		Claim: func(_ context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
			if c := w.claims[namespace+"/"+name]; c != nil {
				return c, nil
			}
			return nil, errors.New("not found")
		},
		CDI: func(context.Context) (bool, error) { return true, nil },
	}
	return w
}

// manager is the node's side after a start of the agent; the driver is there if it says so.
func (w *world) manager(t *testing.T, there bool) *Manager {
	t.Helper()
	m := New(w.config)
	if there {
		if err := m.Register(t.Context(), "d", w.socket, []string{"v1beta1.DRAPlugin", draapi.DRAPluginService}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (w *world) claim(name string, users ...*corev1.Pod) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "a", Driver: "d", Pool: "n", Device: "gpu-0"}, {Request: "b/small", Driver: "d", Pool: "n", Device: "gpu-1"}}}}
	for _, u := range users {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: u.Name, UID: u.UID})
	}
	w.claims["ns/"+name] = c
	return c
}

func user(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("pod-" + name)}}
	for _, c := range claims {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "my-" + c, ResourceClaimName: &c})
	}
	return p
}

func wanting(claims ...corev1.ResourceClaim) *corev1.Container {
	return &corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Claims: claims}}
}

func said(t *testing.T, err error, text string) {
	t.Helper()
	if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
		t.Errorf("got %v, want %q", err, text)
	}
}

func TestDevicesArePreparedAndGivenBack(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, true)
	pod, other := user("p", "c"), user("q", "c")
	w.claim("c", pod, other)
	ctx := t.Context()
	_, err := m.Container(ctx, pod, wanting(corev1.ResourceClaim{Name: "my-c"}))
	said(t, err, "ResourceClaim c is not prepared")
	said(t, m.Prepare(ctx, pod), "")
	for request, want := range map[string][]string{
		"": {"x.com/gpu=all", "x.com/gpu=c-a", "x.com/gpu=c-b"}, "a": {"x.com/gpu=all", "x.com/gpu=c-a"}, "b": {"x.com/gpu=all", "x.com/gpu=c-b"},
	} {
		names, err := m.Container(ctx, pod, wanting(corev1.ResourceClaim{Name: "my-c", Request: request}))
		said(t, err, "")
		if !slices.Equal(names, want) {
			t.Errorf("request %q gets %v, want %v", request, names, want)
		}
	}
	if names, err := m.Container(ctx, pod, wanting()); err != nil || names != nil {
		t.Errorf("a container that names no claim gets %v, %v", names, err)
	}
	m = w.manager(t, true) // The agent starts again.
	if names, err := m.Container(ctx, pod, wanting(corev1.ResourceClaim{Name: "my-c"})); err != nil || len(names) != 3 {
		t.Errorf("after a restart: %v, %v", names, err)
	}
	said(t, m.Prepare(ctx, other), "")
	said(t, m.Release(ctx, pod.UID), "")
	if got := w.calls(); got != "prepare ns/c, prepare ns/c" {
		t.Errorf("while another pod uses the claim: %s", got)
	}
	said(t, m.Release(ctx, other.UID), "")
	said(t, m.Release(ctx, other.UID), "")
	if got := w.calls(); got != "unprepare ns/c" || len(m.known) != 0 {
		t.Errorf("after the last pod: %s, %v", got, m.known)
	}
	said(t, m.Release(ctx, "another pod"), "")
}

func TestWhoMayHaveAClaim(t *testing.T) {
	w := newWorld(t)
	pod := user("p", "c")
	template := user("p", "c")
	template.Spec.ResourceClaims[0].ResourceClaimName, template.Spec.ResourceClaims[0].ResourceClaimTemplateName = nil, new("t")
	named := template.DeepCopy()
	named.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "my-c", ResourceClaimName: new("c")}}
	for name, c := range map[string]struct {
		pod    *corev1.Pod
		change func(*resourcev1.ResourceClaim)
		away   bool
		refuse string
		want   string
	}{
		"a user":                {pod: pod},
		"nobody":                {pod: pod, change: func(c *resourcev1.ResourceClaim) { c.Status.ReservedFor = nil }, want: "pod p (pod-p) is not allowed to use ResourceClaim c"},
		"no devices":            {pod: pod, change: func(c *resourcev1.ResourceClaim) { c.Status.Allocation = nil }, want: "ResourceClaim c has no devices"},
		"not made yet":          {pod: template, want: "ResourceClaim not created yet"},
		"another's":             {pod: named, want: "was not created for Pod"},
		"no such claim":         {pod: user("p", "gone"), want: "fetch ResourceClaim gone: not found"},
		"a driver that is away": {pod: pod, away: true, want: "DRA driver d is not registered"},
		"a driver that refuses": {pod: pod, refuse: "broken fan", want: "NodePrepareResources of DRA driver d failed for ResourceClaim c: broken fan"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := w.claim("c", pod)
			if c.change != nil {
				c.change(claim)
			}
			w.say(c.refuse)
			m := w.manager(t, !c.away)
			said(t, m.Prepare(t.Context(), c.pod), c.want)
			if asked := w.calls(); (asked != "") != (c.want == "" || c.refuse != "") {
				t.Errorf("the driver was asked to %s", asked)
			}
			if c.refuse != "" {
				_, err := m.Container(t.Context(), pod, wanting(corev1.ResourceClaim{Name: "my-c"}))
				said(t, err, "is not prepared")
			}
			w.say("")
			said(t, m.Release(t.Context(), pod.UID), "")
			w.calls()
		})
	}
	if err := New(w.config).Register(t.Context(), "old", "s", []string{"v1alpha4.Node"}); err == nil {
		t.Error("a driver that speaks another language is taken")
	}
}

// A driver is asked to undo what it did also if it, or the agent, was away when the pod ended.
func TestADriverThatIsAway(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, true)
	pod := user("p", "c", "d")
	w.claim("c", pod)
	w.claim("d", pod)
	said(t, m.Prepare(t.Context(), pod), "")
	m.Deregister(t.Context(), "d")
	said(t, m.Release(t.Context(), pod.UID), "DRA driver d is not registered")
	m = w.manager(t, false)
	remains := func(types.UID) bool { return false }
	said(t, m.Sweep(t.Context(), remains), "DRA driver d is not registered")
	if err := m.Register(t.Context(), "d", w.socket, []string{draapi.DRAPluginService}); err != nil {
		t.Fatal(err)
	}
	w.calls()
	w.say("not yet")
	said(t, m.Sweep(t.Context(), remains), "not yet")
	w.say("")
	said(t, m.Sweep(t.Context(), func(types.UID) bool { return true }), "")
	w.calls()
	said(t, m.Sweep(t.Context(), remains), "")
	if got := w.calls(); !strings.Contains(got, "unprepare ns/c") || !strings.Contains(got, "unprepare ns/d") || len(m.known) != 0 {
		t.Errorf("asked to %s; left %v", got, m.known)
	}
}

// The driver is on disk before it is asked: an agent that is killed while it prepares still has it undo that.
func TestAnAgentThatDiesWhileADriverPrepares(t *testing.T) {
	w := newWorld(t)
	pod := user("p", "c")
	w.claim("c", pod)
	var seen []byte
	w.beside = func() { seen, _ = os.ReadFile(w.config.File) }
	said(t, w.manager(t, true).Prepare(t.Context(), pod), "")
	if err := os.WriteFile(w.config.File, seen, 0o600); err != nil {
		t.Fatal(err)
	}
	m := w.manager(t, true)
	_, err := m.Container(t.Context(), pod, wanting(corev1.ResourceClaim{Name: "my-c"}))
	said(t, err, "is not prepared")
	w.calls()
	said(t, m.Release(t.Context(), pod.UID), "")
	if got := w.calls(); got != "unprepare ns/c" {
		t.Errorf("asked to %s", got)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	pod := user("p", "c")
	w.claim("c", pod)
	if err := errors.Join(os.MkdirAll(filepath.Dir(w.config.File), 0o750), os.WriteFile(w.config.File, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	m := w.manager(t, true)
	said(t, m.Problem(), "remove the file when no pod with a resource claim is left")
	said(t, m.Prepare(t.Context(), pod), "read which devices are prepared")
	said(t, m.Prepare(t.Context(), user("without")), "")
	w.config.CDI = func(context.Context) (bool, error) { return false, nil }
	if err := os.Remove(w.config.File); err != nil {
		t.Fatal(err)
	}
	m = w.manager(t, true)
	said(t, m.Prepare(t.Context(), pod), "")
	_, err := m.Container(t.Context(), pod, wanting(corev1.ResourceClaim{Name: "my-c"}))
	said(t, err, "the container runtime does not know devices by their CDI names")
}

// Many pods come and go with one claim: the driver ends with nothing prepared.
func TestPodsShareAClaim(t *testing.T) {
	w := newWorld(t)
	m := w.manager(t, true)
	var pods []*corev1.Pod
	for i := range 8 {
		pods = append(pods, user(fmt.Sprint("p", i), "c"))
	}
	w.claim("c", pods...)
	var all sync.WaitGroup
	for _, pod := range pods {
		all.Go(func() {
			for range 5 {
				if err := errors.Join(m.Prepare(t.Context(), pod), m.Release(t.Context(), pod.UID)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	calls := strings.Split(w.calls(), ", ")
	if len(m.known) != 0 || len(m.held) != 0 || calls[len(calls)-1] != "unprepare ns/c" {
		t.Errorf("left %v, held %v, last asked to %s", m.known, m.held, calls[len(calls)-1])
	}
}

// offers are slices by name, with their drivers.
type offers struct {
	mu     sync.Mutex
	slices map[string]string
	fails  int
	// looks is how often they were listed.
	looks int
}

func (o *offers) List(context.Context) ([]resourcev1.ResourceSlice, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looks++
	o.fails--
	if o.fails >= 0 {
		return nil, errors.New("no connection")
	}
	var list []resourcev1.ResourceSlice
	for name, driver := range o.slices {
		list = append(list, resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{Driver: driver}})
	}
	return list, nil
}

func (o *offers) Delete(_ context.Context, name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.slices, name)
	return nil
}

func (o *offers) left() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(o.slices)), " ")
}

// What a driver offers is taken back when it has been away for a while, and not when it only starts again.
func TestOffersOfDriversThatAreAway(t *testing.T) {
	w := newWorld(t)
	o := &offers{slices: map[string]string{"of-d": "d", "of-gone": "gone"}, fails: 1}
	now := testclock.NewFakeClock(time.Unix(1e9, 0))
	w.config.Offers, w.config.Clock = o, now
	m := w.manager(t, true)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	defer running.Wait()
	defer cancel()
	until := func(what string, met func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !met(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it never came that %s: left are %s", what, o.left())
			}
		}
	}
	pass := func() {
		t.Helper()
		until("it waits", now.HasWaiters)
		now.Step(absence)
	}
	pass() // The API does not answer.
	pass()
	until("the driver that did not come again has no slices", func() bool { return o.left() == "of-d" })
	m.Deregister(ctx, "d")
	until("it waits", now.HasWaiters)
	if err := m.Register(ctx, "d", w.socket, []string{draapi.DRAPluginService}); err != nil {
		t.Fatal(err)
	}
	now.Step(absence)
	until("it looked for the third time", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.looks == 3
	})
	cancel()
	running.Wait()
	if o.left() != "of-d" {
		t.Errorf("a driver that came again lost its slices: %s", o.left())
	}
	m.Deregister(t.Context(), "d")
	if err := m.withdraw(t.Context()); err != nil || o.left() != "" {
		t.Errorf("of a driver that is away are left %q, %v", o.left(), err)
	}
}
