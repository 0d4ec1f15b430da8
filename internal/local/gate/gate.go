// Package gate leads connections to one of several servers that is ready.
package gate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// How often the gate asks each server whether it is ready, how long it waits for the
// answer, and how long a connection to one may take.
const (
	gateInterval = time.Second
	gatePatience = 2 * time.Second
	gateDial     = 2 * time.Second
)

// Gate is where several servers are reached at one address, that of the kubeconfig: it
// passes connections on, and those of a server that is not ready any more end. It knows
// nothing of what is said on them.
type Gate struct {
	Servers []netip.AddrPort
	client  *http.Client
	// kubeconfig is the administrator's, for servers that tell nobody else whether they are ready.
	kubeconfig string

	mu        sync.Mutex
	standings standings
	open      map[net.Conn]int // the connections to servers
}

// New returns a gate to servers at these addresses; the kubeconfig has the rights to ask them how they are.
func New(servers []netip.AddrPort, kubeconfig string) *Gate {
	return &Gate{
		Servers: servers, kubeconfig: kubeconfig, standings: make(standings, len(servers)), open: map[net.Conn]int{},
		client: &http.Client{Timeout: gatePatience, Transport: &http.Transport{
			DisableKeepAlives: true,
			//nolint:gosec // Nothing is told and nothing believed: clients see themselves with whom they speak.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}},
	}
}

// Run serves the listeners until ctx ends, and closes them.
func (g *Gate) Run(ctx context.Context, listeners []net.Listener) {
	var group sync.WaitGroup
	for number := range g.Servers {
		group.Go(func() { g.watch(ctx, number) })
	}
	for _, l := range listeners {
		stop := context.AfterFunc(ctx, func() { _ = l.Close() })
		group.Go(func() {
			defer stop()
			g.accept(ctx, l)
		})
	}
	<-ctx.Done()
	g.end(func(int) bool { return true })
	group.Wait()
}

func (g *Gate) accept(ctx context.Context, l net.Listener) {
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			klog.FromContext(ctx).Error(err, "A connection to the servers was not taken")
			time.Sleep(gateInterval) // of files, there may be too few
		default:
			go g.pass(ctx, conn)
		}
	}
}

// watch asks one server again and again whether it is ready.
func (g *Gate) watch(ctx context.Context, number int) {
	for {
		err := g.ask(ctx, number)
		if ctx.Err() != nil {
			return
		}
		g.mu.Lock()
		turned := g.standings.asked(number, err == nil, errors.Is(err, syscall.ECONNREFUSED))
		elsewhere := len(g.standings.ready()) > 0
		g.mu.Unlock()
		if turned {
			klog.FromContext(ctx).Info("Whether a server is ready has changed", "server", g.Servers[number], "ready", err == nil,
				"err", err)
		}
		if turned && err != nil && elsewhere {
			g.end(func(of int) bool { return of == number })
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gateInterval):
		}
	}
}

func (g *Gate) ask(ctx context.Context, number int) error {
	address := "https://" + g.Servers[number].String()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := g.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusUnauthorized { // --anonymous-auth=false
		return AskReady(ctx, g.kubeconfig, address, gatePatience)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}

// end closes the connections to some servers.
func (g *Gate) end(of func(number int) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn, number := range g.open {
		if of(number) {
			_ = conn.Close()
		}
	}
}

// pass connects a client to the first server that takes it.
func (g *Gate) pass(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server := g.connect(ctx)
	if server == nil {
		return
	}
	defer g.forget(server)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(server, client) // both ends see themselves what is cut off
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
	<-sent
}

func (g *Gate) connect(ctx context.Context) net.Conn {
	g.mu.Lock()
	order := g.standings.order()
	g.mu.Unlock()
	for _, number := range order {
		conn, err := (&net.Dialer{Timeout: gateDial}).DialContext(ctx, "tcp", g.Servers[number].String())
		if err != nil {
			continue
		}
		g.mu.Lock()
		g.open[conn] = number
		g.mu.Unlock()
		return conn
	}
	return nil
}

func (g *Gate) forget(conn net.Conn) {
	_ = conn.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, conn)
}

// IsReady reports whether a server was ready when it was last asked.
func (g *Gate) IsReady(number int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.standings.ready(), number)
}

// Best is a server that is ready, if there is one.
func (g *Gate) Best() netip.AddrPort {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.Servers[g.standings.order()[0]]
}

// standings are what is known of servers, by their numbers.
type standings []standing

type standing struct {
	ready  bool
	failed int // in a row
}

// asked notes an answer and reports whether the server has turned: to ready at once, to not
// ready when it refuses connections, or fails twice, since a busy machine may be slow once.
func (s standings) asked(number int, ok, refused bool) (turned bool) {
	now := &s[number]
	before := now.ready
	if ok {
		now.ready, now.failed = true, 0
		return !before
	}
	now.failed++
	now.ready = before && !refused && now.failed < 2
	return before && !now.ready
}

func (s standings) ready() (out []int) {
	for number, one := range s {
		if one.ready {
			out = append(out, number)
		}
	}
	return out
}

// order is in which servers are tried: the ready ones first. The others have something to
// say, too: why nothing can be changed.
func (s standings) order() []int {
	out := s.ready()
	for number, one := range s {
		if !one.ready {
			out = append(out, number)
		}
	}
	return out
}

// AskReady asks as the administrator, the server at that URL or else the kubeconfig's.
func AskReady(ctx context.Context, kubeconfig, at string, patience time.Duration) error {
	client, err := clientAt(kubeconfig, at)
	if err != nil {
		return err
	}
	return client.Discovery().RESTClient().Get().AbsPath("/readyz").Timeout(patience).Do(ctx).Error()
}

// ClientFor returns a client of the API that a kubeconfig names.
func ClientFor(kubeconfig string) (kubernetes.Interface, error) { return clientAt(kubeconfig, "") }

func clientAt(kubeconfig, at string) (kubernetes.Interface, error) {
	if _, err := os.Stat(kubeconfig); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags(at, kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	config.UserAgent = "everynode-up"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client from %s: %w", kubeconfig, err)
	}
	return client, nil
}
