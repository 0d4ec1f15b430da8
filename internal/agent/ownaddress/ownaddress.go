package ownaddress

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/mend"
	"github.com/everynode/everynode/internal/files/wholefile"
)

const (
	// elsewhere is an address on no network of anybody: the way there is the machine's default route.
	elsewhere = "192.0.2.1:9"
	// lookEvery is how often a kubelet without --node-ip looks for its address, lookPatience how long a name may take.
	lookEvery    = 10 * time.Second
	lookPatience = 3 * time.Second
)

// Config says where a node's addresses come from.
type Config struct {
	// Fixed are the addresses that were configured, the primary one first; nothing is looked up then.
	Fixed []net.IP
	// Server is the API server's URL.
	Server string
	// File keeps the last address for a start without a network.
	File string
	// Clock tells the time; the default is the real one.
	Clock clock.Clock
	// Dial opens a connection, by UDP, over which nothing is sent; the default is that of net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Held lists the addresses that the machine has; the default is net.InterfaceAddrs.
	Held func() ([]net.Addr, error)
}

// Addresses are a node's addresses as they are now. Its methods may be called from several goroutines.
type Addresses struct {
	cfg    Config
	server string // HOST:PORT

	mu      sync.Mutex
	now     []net.IP
	changed []func()
	problem string // that was logged last
}

// New reads the last address. A file that does not hold one is an error of the log, and no reason not to start.
func New(ctx context.Context, cfg Config) (*Addresses, error) {
	u, err := url.Parse(cfg.Server)
	if err != nil {
		return nil, fmt.Errorf("read the server's URL: %w", err)
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{}).DialContext
	}
	if cfg.Held == nil {
		cfg.Held = net.InterfaceAddrs
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	a := &Addresses{cfg: cfg, server: net.JoinHostPort(u.Hostname(), port), now: cfg.Fixed}
	if len(cfg.Fixed) > 0 {
		return a, nil
	}
	last, err := readLast(cfg.File)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The node's last address is not known")
	}
	if last != nil {
		a.now = []net.IP{last}
	}
	return a, nil
}

// readLast returns nil where there is no file.
func readLast(path string) (net.IP, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the node's last address: %w", err)
	}
	ip := net.ParseIP(strings.TrimSpace(string(raw)))
	if ip == nil {
		return nil, fmt.Errorf("read the node's last address: %s holds %q", path, raw)
	}
	return ip, nil
}

// List returns the node's addresses, the primary one first; none while none is known.
func (a *Addresses) List() []net.IP {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.now)
}

// Texts returns what List does, as text.
func (a *Addresses) Texts() []string {
	var out []string
	for _, ip := range a.List() {
		out = append(out, ip.String())
	}
	return out
}

// OnChange has f called after each change.
func (a *Addresses) OnChange(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed = append(a.changed, f)
}

// Run looks for the address again and again, until ctx ends.
func (a *Addresses) Run(ctx context.Context) {
	for {
		if err := a.Look(ctx); err != nil && ctx.Err() == nil {
			a.say(ctx, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.cfg.Clock.After(lookEvery):
		}
	}
}

// say logs why the address cannot be looked up, once.
func (a *Addresses) say(ctx context.Context, err error) {
	a.mu.Lock()
	again := a.problem == err.Error()
	a.problem = err.Error()
	a.mu.Unlock()
	if !again {
		klog.FromContext(ctx).Error(
			err, "The node's address is not found; it stays what it was", "addresses", a.Texts(), "lookingAgainIn", lookEvery,
		)
	}
}

// Look finds the address once. An error says why none is found and what to do; the last one counts then.
func (a *Addresses) Look(ctx context.Context) error {
	if len(a.cfg.Fixed) > 0 {
		return nil
	}
	var last net.IP
	if list := a.List(); len(list) > 0 {
		last = list[0]
	}
	toServer, err := a.from(ctx, a.server)
	f := found{server: toServer}
	if toServer == nil || !toServer.IsGlobalUnicast() {
		var elseErr, heldErr error
		f.elsewhere, elseErr = a.from(ctx, elsewhere)
		f.held, heldErr = a.held(last)
		err = errors.Join(err, elseErr, heldErr)
	}
	now := choose(last, f)
	if now == nil {
		if err == nil {
			return errors.New("this machine has no address but its own loopback; give one with --node-ip")
		}
		return fmt.Errorf("find this machine's address: %w; give it with --node-ip", err)
	}
	if f.server == nil && f.elsewhere == nil && !f.held {
		return fmt.Errorf("find this machine's address: %w", err)
	}
	a.set(ctx, last, now)
	return nil
}

// from returns the address from which packets to another would be sent. Nothing is sent.
func (a *Addresses) from(ctx context.Context, to string) (net.IP, error) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	connection, err := a.cfg.Dial(ctx, "udp4", to)
	if err != nil {
		return nil, err
	}
	local, ok := connection.LocalAddr().(*net.UDPAddr)
	_ = connection.Close() // Nothing was sent.
	if !ok {
		return nil, fmt.Errorf("the way to %s begins at %v", to, connection.LocalAddr())
	}
	return local.IP, nil
}

func (a *Addresses) held(ip net.IP) (bool, error) {
	all, err := a.cfg.Held()
	if err != nil {
		return false, fmt.Errorf("list the machine's addresses: %w", err)
	}
	return slices.ContainsFunc(all, func(has net.Addr) bool {
		n, ok := has.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	}), nil
}

// Mend implements mend.Part.
func (a *Addresses) Mend() (mended []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.cfg.Fixed) > 0 || len(a.now) == 0 {
		return nil, nil
	}
	return mend.Files(mend.File{Path: a.cfg.File, Mode: 0o600, Content: []byte(a.now[0].String() + "\n")})
}

// set takes the address that was found, keeps it, and tells those who asked for changes.
func (a *Addresses) set(ctx context.Context, last, now net.IP) {
	logger := klog.FromContext(ctx)
	a.mu.Lock()
	a.problem = ""
	a.mu.Unlock()
	if now.Equal(last) {
		return
	}
	a.mu.Lock()
	a.now = []net.IP{now}
	changed := slices.Clone(a.changed)
	err := wholefile.Write(a.cfg.File, 0o600, wholefile.Bytes([]byte(now.String()+"\n")))
	a.mu.Unlock()
	logger.Info("The node has another address", "address", now, "before", last)
	if err != nil {
		logger.Error(err, "The node's address could not be kept for a start without a network", "path", a.cfg.File)
	}
	for _, f := range changed {
		f()
	}
}
