package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/apiserver"
	serveroptions "github.com/everynode/everynode/internal/apiserver/options"
	"github.com/everynode/everynode/internal/apiserver/storages"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/storage/etcd"
)

// patience is how long to wait for what must happen; only a failure ever takes it.
const patience = 2 * time.Minute

// api is an API server without control loops, so that nobody else changes what
// a test has stored. It is called in process.
type api struct {
	http.RoundTripper
	host  string
	kinds []kind
}

// shared is the API server of all tests of this package. It starts when it is
// first needed: the process that coordinates the fuzzer's workers does without.
var shared struct {
	once sync.Once
	api  *api
	dir  string
	stop func()
}

func server() *api {
	shared.once.Do(func() {
		var err error
		shared.dir, err = os.MkdirTemp("", "everynode-hostile-")
		if err == nil {
			shared.api, shared.stop, err = startAPI(shared.dir)
		}
		if err != nil {
			panic(fmt.Errorf("start the API server: %w", err))
		}
	})
	return shared.api
}

// stopServer ends it after the last test.
func stopServer() {
	if shared.stop != nil {
		shared.stop()
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
}

// startAPI starts an API server without control loops.
func startAPI(dir string) (a *api, stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	stop = func() { cancel(); ended.Wait() }
	defer func() {
		if err != nil {
			stop()
		}
	}()
	bundle, err := pki.LoadOrCreate(filepath.Join(dir, "pki"), pki.Options{ServerIPs: []net.IP{net.IPv4(127, 0, 0, 1)}})
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	database, err := etcd.Start(ctx, etcd.Options{Dir: filepath.Join(dir, "etcd"), NoFsync: true})
	if err != nil {
		return nil, nil, err
	}
	_, services, _ := net.ParseCIDR("10.96.0.0/16")
	// Nobody but the tests writes: what is written back is as it was read.
	settings := serveroptions.New()
	settings.Features.EnablePriorityAndFairness = false
	quiet, err := settings.Complete()
	if err != nil {
		database.Close()
		return nil, nil, err
	}
	server, err := apiserver.New(apiserver.Config{
		Options: quiet, PKI: bundle, Listener: listener, AdvertiseAddress: net.IPv4(127, 0, 0, 1), AdvertisePort: 6443,
		OpenStorage: database.Open, OpenHot: storages.Hot(database.OpenHot), OpenReserving: database.OpenReserving, ServiceCIDR: services,
	})
	if err != nil {
		database.Close()
		return nil, nil, err
	}
	ended.Go(func() {
		defer database.Close()
		if err := server.Run(ctx); err != nil {
			panic(err)
		}
	})
	transport, err := restclient.TransportFor(server.LoopbackConfig())
	if err != nil {
		return nil, nil, err
	}
	a = &api{RoundTripper: transport, host: "everynode.invalid"}
	if err := a.waitReady(ctx); err != nil {
		return nil, nil, err
	}
	a.kinds, err = a.discover()
	return a, stop, err
}

func (a *api) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return wait(ctx, func(ctx context.Context) error {
		if got := a.send(ctx, request{method: http.MethodGet, path: "/readyz"}); got.code != http.StatusOK {
			return fmt.Errorf("the API server is not ready: %d %s", got.code, got.body)
		}
		return nil
	})
}

// wait returns when check has nothing to say, or what it says when ctx ends.
func wait(ctx context.Context, check func(context.Context) error) error {
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// request is one call of the API.
type request struct {
	method, path, query string
	// contentType is what the body is, accept what the answer should be; empty means JSON.
	contentType, accept string
	// user to act for instead of the administrator.
	user, group string
	body        []byte
}

func (r request) String() string {
	s := r.method + " " + r.path
	if r.query != "" {
		s += "?" + r.query
	}
	if r.user != "" {
		s += " as " + r.user
	}
	return s + fmt.Sprintf(" [%s > %s] %s", r.contentType, r.accept, short(r.body))
}

func short(b []byte) string {
	if len(b) > 4000 {
		return fmt.Sprintf("%q... (%d bytes)", b[:4000], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// reply is what came back.
type reply struct {
	code     int
	header   http.Header
	body     []byte
	err      error
	panicked []string
}

// send makes the call and reads the whole answer. A watch is read until it has
// nothing more to say for a moment.
func (a *api) send(ctx context.Context, r request) reply {
	req, err := http.NewRequestWithContext(ctx, r.method, "https://"+a.host+"/", nil)
	if err != nil {
		return reply{err: err}
	}
	req.URL.Path, req.URL.RawQuery = r.path, r.query
	if r.body != nil {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.body)), int64(len(r.body))
	}
	set := func(name, value string) {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	set("Content-Type", r.contentType)
	set("Accept", r.accept)
	set("Impersonate-User", r.user)
	set("Impersonate-Group", r.group)
	res, err := a.RoundTrip(req)
	if err != nil {
		return reply{err: err, panicked: panics.take()}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return reply{code: res.StatusCode, header: res.Header, body: body, err: err, panicked: panics.take()}
}

// panics collects what panicked, also where somebody recovers.
var panics = watchPanics()

type panicLog struct {
	mu    sync.Mutex
	found []string
}

func watchPanics() *panicLog {
	l := &panicLog{}
	utilruntime.PanicHandlers = append(utilruntime.PanicHandlers, func(_ context.Context, p any) {
		if err, _ := p.(error); errors.Is(err, http.ErrAbortHandler) {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.found = append(l.found, fmt.Sprint(p))
	})
	return l
}

// take returns what panicked since it was last asked.
func (l *panicLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.found
	l.found = nil
	return out
}
