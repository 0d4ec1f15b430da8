package join

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/join/turns"
)

const (
	// serversFile holds where the API servers are.
	serversFile = "servers.json"
	// dialOnly is how long a connection to the only server may take, dialTurn how long one
	// to one of several.
	dialOnly, dialTurn = 30 * time.Second, 5 * time.Second
)

// servers is the node's way to one of the API servers.
type servers struct {
	clock      clock.Clock
	store      store
	configured string // HOST:PORT

	// skew is how far the clock is ahead of the one of the server that answered last, in nanoseconds.
	skew atomic.Int64

	mu    sync.Mutex // guards turns
	turns turns.Servers
}

// newServers reads what is known. A file that cannot be used is of no use, and no harm:
// the server of the configuration is known without it.
func newServers(s store, configured, nodeName string, c clock.Clock) *servers {
	out := &servers{clock: c, store: s, configured: configured}
	if data, err := os.ReadFile(s.path(serversFile)); err == nil && json.Unmarshal(data, &out.turns) != nil {
		out.turns = turns.Servers{}
	}
	out.turns.SpreadBy(nodeName)
	return out
}

// learn keeps which servers live.
func (s *servers) learn(ctx context.Context, living []netip.AddrPort) error {
	texts := make([]string, len(living))
	for i, a := range living {
		texts[i] = a.String()
	}
	s.mu.Lock()
	changed := s.turns.Learn(s.clock.Now(), texts)
	data, err := json.Marshal(&s.turns)
	known := len(s.turns.Seen)
	s.mu.Unlock()
	if err != nil || !changed {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Learned where the servers are", "known", known, "living", texts)
	return s.store.write(serversFile, data)
}

// dial connects to the first server that takes a connection.
func (s *servers) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if address != s.configured {
		return dialer(dialOnly).DialContext(ctx, network, address) // a proxy
	}
	s.mu.Lock()
	order := s.turns.Order(s.clock.Now(), s.configured)
	s.mu.Unlock()
	patience := dialTurn
	if len(order) == 1 {
		patience = dialOnly
	}
	var errs []error
	for _, server := range order {
		conn, err := dialer(patience).DialContext(ctx, network, server)
		s.mu.Lock()
		if err == nil {
			s.turns.Connected(server)
		} else if ctx.Err() == nil {
			s.turns.Failed(s.clock.Now(), server)
		}
		s.mu.Unlock()
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 1 {
		return nil, errs[0]
	}
	return nil, fmt.Errorf("no server can be reached: %w", errors.Join(errs...))
}

// A connection on which the other side is silent when it is asked, or takes nothing, for
// so long is given up. A machine without power does not say goodbye.
var alive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 3 * time.Second, Count: 3}

const takesNothing = 12 * time.Second

func dialer(patience time.Duration) *net.Dialer {
	return &net.Dialer{Timeout: patience, KeepAliveConfig: alive, Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			//nolint:gosec // A descriptor.
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(takesNothing.Milliseconds()))
		})
		return errors.Join(err, set)
	}}
}

// watched tells from the answers when a node should turn to another server: one may
// take connections and be cut off from the others.
type watched struct {
	http.RoundTripper
	servers *servers
	// turn closes all connections.
	turn func()
}

// RoundTrip implements http.RoundTripper.
func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.RoundTripper.RoundTrip(r)
	if errors.Is(r.Context().Err(), context.Canceled) {
		return response, err // nobody waits for it any more, which says nothing
	}
	w.servers.noteTime(response)
	ok := err == nil && response.StatusCode < http.StatusInternalServerError
	w.servers.mu.Lock()
	turn := w.servers.turns.Answered(w.servers.clock.Now(), ok)
	w.servers.mu.Unlock()
	if turn {
		klog.FromContext(r.Context()).Info("The server answers nothing but errors; turning to another")
		w.turn()
	}
	return response, err
}
