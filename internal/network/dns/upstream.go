package dns

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/cache"
	"github.com/coredns/coredns/plugin/forward"
	"github.com/coredns/coredns/plugin/pkg/proxy"
	"github.com/miekg/dns"
	"k8s.io/klog/v2"
)

// rereadEvery is how often the node's resolver file is looked at: it changes when
// the machine moves to another network.
const rereadEvery = 10 * time.Second

// maxServers is how many name servers are asked, as many as a resolver file may have.
const maxServers = 3

var errNoServers = errors.New("the node has no name servers")

// upstream asks the node's own name servers and remembers their answers. It is a
// plugin.Handler.
type upstream struct {
	path string
	// not are addresses that lead back here.
	not []netip.Addr
	// port is where name servers answer.
	port    string
	current atomic.Pointer[chain]
	content []byte
	// servers are those in content, and back those of them that asked this one back when it was looked at for the last
	// time, which is zero while it was not.
	servers, back []string
	looked        time.Time
	echoes        echoes
}

// chain is one set of name servers.
type chain struct {
	first plugin.Handler
	stop  func() error
}

func newUpstream(path string, not []netip.Addr) *upstream {
	return &upstream{path: path, not: not, port: "53"}
}

// Name implements plugin.Handler.
func (*upstream) Name() string { return "upstream" }

// ServeDNS implements plugin.Handler.
func (u *upstream) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	c := u.current.Load()
	if c == nil {
		return dns.RcodeServerFailure, errNoServers
	}
	return c.first.ServeDNS(ctx, w, r)
}

// run follows the resolver file until ctx ends.
func (u *upstream) run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	var last string
	for {
		err := u.reread()
		if err == nil {
			err = u.leaveOut(ctx, time.Now())
		}
		if err != nil && err.Error() != last {
			logger.Error(err, "Names outside the cluster may not be found", "file", u.path)
		}
		if last = ""; err != nil {
			last = err.Error()
		}
		select {
		case <-ctx.Done():
			u.replace(nil)
			return
		case <-tick.C:
		}
	}
}

// reread takes the name servers from the resolver file if it has changed.
func (u *upstream) reread() error {
	content, err := os.ReadFile(u.path)
	if err != nil {
		return fmt.Errorf("read the node's name servers: %w", err)
	}
	if bytes.Equal(content, u.content) && u.current.Load() != nil {
		return nil
	}
	servers, err := serversIn(content, u.not, u.port)
	if err != nil {
		return fmt.Errorf("read the node's name servers in %s: %w", u.path, err)
	}
	u.content, u.servers, u.back, u.looked = content, servers, nil, time.Time{}
	if len(servers) == 0 {
		u.replace(nil)
		return errNoServers
	}
	u.replace(newChain(servers))
	return nil
}

// leaveOut takes out those name servers that ask this one back: a question to them would go round until its time is up.
// It looks at new ones once, and at those that do from time to time.
func (u *upstream) leaveOut(ctx context.Context, now time.Time) error {
	if u.looked.IsZero() || len(u.back) > 0 && now.Sub(u.looked) >= echoAgain {
		u.looked = now
		var back, rest []string
		for _, server := range u.servers {
			if u.echoes.comesBack(ctx, server) {
				back = append(back, server)
			} else {
				rest = append(rest, server)
			}
		}
		switch {
		case slices.Equal(back, u.back):
		case len(rest) == 0:
			u.replace(nil)
		default:
			u.replace(newChain(rest))
		}
		u.back = back
	}
	if len(u.back) == 0 {
		return nil
	}
	return fmt.Errorf("the name servers %s ask this one back, so they are left out: have them ask others",
		strings.Join(u.back, ", "))
}

func (u *upstream) replace(next *chain) {
	if old := u.current.Swap(next); old != nil {
		_ = old.stop() // It never fails.
	}
}

func newChain(servers []string) *chain {
	f := forward.New()
	for _, address := range servers {
		f.SetProxy(proxy.NewProxy("forward", address, "dns"))
	}
	c := cache.New()
	c.Next = f
	return &chain{first: c, stop: f.OnShutdown}
}

// serversIn lists the name servers of a resolver file as host:port, without those
// that lead back here.
func serversIn(content []byte, not []netip.Addr, port string) (out []string, err error) {
	config, err := dns.ClientConfigFromReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	for _, text := range config.Servers {
		ip, err := netip.ParseAddr(text)
		if err != nil || slices.Contains(not, ip.Unmap()) || len(out) == maxServers {
			continue
		}
		out = append(out, net.JoinHostPort(text, port))
	}
	return out, nil
}
