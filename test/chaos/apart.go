package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"

	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/everynode/everynode/test/chaos/faults"
	"github.com/everynode/everynode/test/chaos/history/pulls"
	"github.com/everynode/everynode/test/chaos/plan"
)

// apart is the DaemonSet controller in a process of its own, which speaks to the
// server through a proxy with faults. When it is killed, another one begins.
type apart struct {
	process *process
	line    *faults.Line
	server  atomic.Pointer[backend] // the server's present life
	stop    func()                  // ends the proxy
	url     string
	byPods  bool // pods have nodes fetch images

	mu         sync.Mutex // held while the controller is started or ended
	over       bool
	controller *exec.Cmd
	ended      chan error
}

// backend is where a server listens, and who may speak to it.
type backend struct {
	host      string
	transport http.RoundTripper
}

func newApart(p *process, seed uint64, byPods bool) *apart {
	a := &apart{process: p, stop: func() {}, byPods: byPods}
	a.line = faults.NewLine(roundTripper(a.forward), rand.New(rand.NewPCG(seed, 1)))
	return a
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// forward sends a request to the server as it is now.
func (a *apart) forward(req *http.Request) (*http.Response, error) {
	to := a.server.Load()
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host, req.Host = "https", to.host, to.host
	return to.transport.RoundTrip(req)
}

// connect tells where the server is from now on.
func (a *apart) connect(config *restclient.Config) error {
	transport, err := restclient.TransportFor(config)
	if err != nil {
		return err
	}
	at, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	a.server.Store(&backend{host: at.Host, transport: transport})
	return nil
}

// start starts the proxy and the controller.
func (a *apart) start() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	quiet := log.New(io.Discard, "", 0)
	proxy := &http.Server{ErrorLog: quiet, Handler: &httputil.ReverseProxy{
		ErrorLog: quiet, Rewrite: func(*httputil.ProxyRequest) {}, Transport: a.line, FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = proxy.Serve(listener)
	}()
	a.stop = func() {
		_ = proxy.Close()
		<-served
	}
	a.url = "http://" + listener.Addr().String()
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: a.url}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	if err := clientcmd.WriteToFile(*config, a.kubeconfig()); err != nil {
		return err
	}
	return a.begin()
}

func (a *apart) kubeconfig() string { return filepath.Join(a.process.dir, "controller-kubeconfig") }

// begin starts a controller, which ends by itself while there is no server, and is
// started again then.
func (a *apart) begin() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.another(nil)
}

// another starts a controller in place of one that ended, unless there is one.
func (a *apart) another(last *exec.Cmd) error {
	if a.over || a.controller != last {
		return nil
	}
	args := []string{"controller", "--kubeconfig", a.kubeconfig(), "--leader-elect=false", "--kube-api-qps", "-1",
		"--record-decisions", a.process.recording()}
	if a.byPods {
		args = append(args, "--fetch-image", pulls.Image)
	}
	c := exec.Command(a.process.binary, args...)
	c.Stdout, c.Stderr = a.process.log, a.process.log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start the controller: %w", err)
	}
	ended := make(chan error, 1)
	a.controller, a.ended = c, ended
	go func() {
		ended <- c.Wait()
		sleep(context.Background(), steady/2)
		a.mu.Lock()
		defer a.mu.Unlock()
		if err := a.another(c); err != nil {
			a.process.journal.broken(err)
		}
	}()
	return nil
}

// kill ends the controller, with what it sent under way.
func (a *apart) kill() {
	a.mu.Lock()
	c, ended := a.controller, a.ended
	a.controller = nil
	a.mu.Unlock()
	if c != nil {
		_ = c.Process.Kill()
		<-ended
	}
}

// strike does what goes wrong with the controller; false if that is none of it.
func (a *apart) strike(ctx context.Context, s plan.Step) bool {
	switch s.Op {
	case plan.KillController:
		a.process.journal.fault("%s", s.Op)
		a.kill()
		if err := a.begin(); err != nil {
			a.process.journal.broken(err)
		}
	case plan.DropWatches, plan.Relist:
		a.process.journal.fault("controller: %s", s.Op)
		a.line.Drop(s.Op == plan.Relist)
	case plan.SlowWatches:
		a.process.journal.fault("controller: %s", s.Op)
		a.line.Slow(true)
		sleep(ctx, s.For)
		a.line.Slow(false)
	case plan.FlakyWrites:
		a.process.journal.fault("controller: %s", s.Op)
		a.line.Flaky(true)
		sleep(ctx, s.For)
		a.line.Flaky(false)
	case plan.RefuseNode:
		refuseNode(ctx, a.line, a.process.journal, fmt.Sprintf("sim-%04d", 1+s.Pick%a.process.nodes), "", s.For)
	default:
		return false
	}
	return true
}

func (a *apart) end() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	a.kill()
	a.stop()
}
