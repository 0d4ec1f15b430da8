package plugins

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

func TestPlan(t *testing.T) {
	now := time.Unix(1e9, 0)
	a, b := socket{1, 1}, socket{2, 1}
	taken := &plugin{"CSIPlugin", "x"}
	for _, tc := range []struct {
		name        string
		have        map[string]*known
		seen        map[string]socket
		forget, try []string
		wait        time.Duration
	}{
		{"nothing", nil, nil, nil, nil, -1},
		{"a new one", nil, map[string]socket{"/a": a}, nil, []string{"/a"}, -1},
		{"one that was taken", map[string]*known{"/a": {socket: a, taken: taken}}, map[string]socket{"/a": a}, nil, nil, -1},
		{"one that is gone", map[string]*known{"/a": {socket: a, taken: taken}}, nil, []string{"/a"}, nil, -1},
		{"another one in its place", map[string]*known{"/a": {socket: a, taken: taken}}, map[string]socket{"/a": b}, []string{"/a"}, []string{"/a"}, -1},
		{"ones that failed", map[string]*known{"/a": {socket: a, next: now}, "/b": {socket: b, next: now.Add(time.Second)}},
			map[string]socket{"/a": a, "/b": b}, nil, []string{"/a"}, time.Second},
	} {
		forget, try, wait := plan(tc.have, tc.seen, now)
		if !reflect.DeepEqual(forget, tc.forget) || !reflect.DeepEqual(try, tc.try) || wait != tc.wait {
			t.Errorf("%s: forget %v, try %v, wait %v; want %v, %v, %v", tc.name, forget, try, wait, tc.forget, tc.try, tc.wait)
		}
	}
	k := known{}
	var waits []time.Duration
	for range 11 {
		k.failed(now)
		waits = append(waits, k.next.Sub(now))
	}
	if waits[0] != firstRetry || waits[1] != 2*firstRetry || waits[10] != lastRetry {
		t.Errorf("tried again after %v", waits)
	}
}

// registrar is a plugin that registers.
type registrar struct {
	registerapi.UnimplementedRegistrationServer
	info registerapi.PluginInfo
	told chan string
	// deaf is how often it does not take the answer.
	deaf int
}

func (r *registrar) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: r.info.Type, Name: r.info.Name, Endpoint: r.info.Endpoint, SupportedVersions: r.info.SupportedVersions}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	r.told <- fmt.Sprint(s.PluginRegistered, " ", s.Error)
	r.deaf--
	if r.deaf >= 0 {
		return nil, errors.New("not now")
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

// start serves at the path until stop is called, or the test ends. The socket goes with it.
func (r *registrar) start(t *testing.T, path string) (stop func()) {
	t.Helper()
	r.told = make(chan string, 100)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	registerapi.RegisterRegistrationServer(server, r)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server.Stop
}

// handler notes what it is told.
type handler struct {
	mu     sync.Mutex
	refuse error
	calls  chan string
}

func (h *handler) Register(_ context.Context, name, socket string, versions []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refuse == nil {
		h.calls <- fmt.Sprintf("register %s at %s, %v", name, filepath.Base(socket), versions)
	}
	return h.refuse
}

func (h *handler) Deregister(_ context.Context, name string) { h.calls <- "deregister " + name }

// next waits for what must come. Only a failure takes long.
func next(t *testing.T, from <-chan string, want string) {
	t.Helper()
	select {
	case got := <-from:
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatalf("there never was %q", want)
	}
}

// run runs the watcher until the test ends.
func run(t *testing.T, w *Watcher) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

func TestPluginsComeAndGo(t *testing.T) {
	dir := t.TempDir()
	h := &handler{calls: make(chan string, 100)}
	early := &registrar{info: registerapi.PluginInfo{Type: "CSIPlugin", Name: "early", Endpoint: "/csi/csi.sock", SupportedVersions: []string{"1.0.0"}}}
	stopEarly := early.start(t, filepath.Join(dir, "early.sock"))
	w := New(Config{Dir: dir, Handlers: map[string]Handler{"CSIPlugin": h}, Clock: clock.RealClock{}})
	run(t, w)
	next(t, h.calls, "register early at csi.sock, [1.0.0]")
	next(t, early.told, "true ")

	// In a folder that comes later, and without an endpoint of its own.
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	late := &registrar{info: registerapi.PluginInfo{Type: "CSIPlugin", Name: "late"}}
	stopLate := late.start(t, filepath.Join(dir, "below", "late.sock"))
	next(t, h.calls, "register late at late.sock, []")
	next(t, late.told, "true ")

	unknown := &registrar{info: registerapi.PluginInfo{Type: "Teapot", Name: "x"}}
	unknown.start(t, filepath.Join(dir, "unknown.sock"))
	next(t, unknown.told, "false plugin registration failed with err: no handler registered for plugin type: Teapot at socket "+filepath.Join(dir, "unknown.sock"))

	// One that takes the place of another: the name is not given up in between.
	second := &registrar{info: registerapi.PluginInfo{Type: "CSIPlugin", Name: "late"}}
	stopSecond := second.start(t, filepath.Join(dir, "second.sock"))
	next(t, h.calls, "register late at second.sock, []")
	stopLate()
	stopEarly()
	next(t, h.calls, "deregister early")
	stopSecond()
	next(t, h.calls, "deregister late")
}

func TestAPluginIsTriedAgain(t *testing.T) {
	dir := t.TempDir()
	h := &handler{calls: make(chan string, 100), refuse: errors.New("not yet")}
	w := New(Config{Dir: dir, Handlers: map[string]Handler{"CSIPlugin": h}, Clock: clock.RealClock{}})
	r := &registrar{info: registerapi.PluginInfo{Type: "CSIPlugin", Name: "x"}}
	r.start(t, filepath.Join(dir, "x.sock"))
	run(t, w)
	next(t, r.told, "false plugin registration failed with err: not yet")
	h.mu.Lock()
	h.refuse = nil
	h.mu.Unlock()
	next(t, h.calls, "register x at x.sock, []")
}

func TestTheFolderIsMadeAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "registry")
	h := &handler{calls: make(chan string, 100)}
	run(t, New(Config{Dir: dir, Handlers: map[string]Handler{"CSIPlugin": h}, Clock: clock.RealClock{}}))
	awaitFolder(t, dir)
	for range 3 {
		r := &registrar{info: registerapi.PluginInfo{Type: "CSIPlugin", Name: "x"}}
		stop := r.start(t, filepath.Join(dir, "x.sock"))
		next(t, h.calls, "register x at x.sock, []")
		next(t, r.told, "true ")
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		next(t, h.calls, "deregister x")
		awaitFolder(t, dir)
		stop()
	}
}

func awaitFolder(t *testing.T, dir string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(dir); err == nil {
			return
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestAFolderThatCannotBeWatchedIsLookedThrough(t *testing.T) {
	dir := t.TempDir()
	h := &handler{calls: make(chan string, 100)}
	now := testclock.NewFakeClock(time.Unix(1e9, 0))
	w := New(Config{Dir: dir, Handlers: map[string]Handler{"CSIPlugin": h}, Clock: now})
	w.newNotify = func() (*fsnotify.Watcher, error) { return nil, errors.New("too many open files") }
	run(t, w)
	awaitPause := func() {
		t.Helper()
		for end := time.Now().Add(time.Minute); !now.HasWaiters(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it does not wait")
			}
		}
	}
	awaitPause()
	r := &registrar{info: registerapi.PluginInfo{Type: "CSIPlugin", Name: "x"}}
	r.start(t, filepath.Join(dir, "x.sock"))
	now.Step(lookAgain)
	next(t, h.calls, "register x at x.sock, []")
}

func TestAPluginThatWasTakenIsOnlyToldAgain(t *testing.T) {
	dir := t.TempDir()
	h := &handler{calls: make(chan string, 100)}
	r := &registrar{info: registerapi.PluginInfo{Type: "CSIPlugin", Name: "x"}, deaf: 1}
	stop := r.start(t, filepath.Join(dir, "x.sock"))
	run(t, New(Config{Dir: dir, Handlers: map[string]Handler{"CSIPlugin": h}, Clock: clock.RealClock{}}))
	next(t, h.calls, "register x at x.sock, []")
	next(t, r.told, "true ")
	next(t, r.told, "true ")
	stop()
	next(t, h.calls, "deregister x")
}
