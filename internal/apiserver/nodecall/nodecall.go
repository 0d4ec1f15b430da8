// Package nodecall is the API server's way to the agents of nodes. An agent is
// called by its node's name: the name is the host of the URL, the address comes
// from the Node, and the connection stands only when the agent proves that it is
// that node's. So an address that a node reports, wherever it leads, is never more
// than a place to knock at.
package nodecall

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/everynode/everynode/internal/node"
)

// dialPatience is how long a connection to an agent may take.
const dialPatience = 10 * time.Second

// Caller calls agents.
type Caller struct {
	nodes     func(ctx context.Context, name string) (*corev1.Node, error)
	dialer    net.Dialer
	identity  *tls.Config
	transport atomic.Pointer[http.Transport]
	connections
}

// Refusals tell which certificates of agents are refused although they are in order.
type Refusals interface {
	Check(cert *x509.Certificate) error
	// OnRevoke has f called with each node whose certificates are refused from then on.
	OnRevoke(f func(node string))
}

// New makes a Caller. Identity is what agents know the API server by, and verifies
// that the agent is the node's in its ServerName; nodes reads a Node; refusals has
// a last word, and ends connections that stand.
func New(identity *tls.Config,
	nodes func(ctx context.Context, name string) (*corev1.Node, error), refusals Refusals) *Caller {
	c := &Caller{nodes: nodes, dialer: net.Dialer{Timeout: dialPatience}}
	identity = identity.Clone()
	verify := identity.VerifyConnection
	identity.VerifyConnection = func(state tls.ConnectionState) error {
		if verify != nil {
			if err := verify(state); err != nil {
				return err
			}
		}
		return refusals.Check(state.PeerCertificates[0])
	}
	refusals.OnRevoke(func(node string) {
		for _, connection := range c.to(node) {
			_ = connection.Close() // whoever reads from it says so
		}
	})
	c.identity = identity
	c.Renew()
	return c
}

// Renew has all further requests made on new connections, which show the certificate
// that the identity has by then: agents look at each request's. What is under way goes
// on where it is.
func (c *Caller) Renew() {
	before := c.transport.Swap(utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: c.identity, DialContext: c.dial, IdleConnTimeout: 90 * time.Second,
		// A proxy of the environment is for the way out, not for the way to nodes.
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	}))
	if before != nil {
		before.CloseIdleConnections()
	}
}

// Transport does requests to URLs that URL has made, until Renew.
func (c *Caller) Transport() *http.Transport { return c.transport.Load() }

// URL leads to a path on the node's agent; ok is false when the node reports none,
// as simulated nodes do.
func (c *Caller) URL(n *corev1.Node, path string, query url.Values) (location *url.URL, ok bool) {
	if node.AgentAddress(n) == "" {
		return nil, false
	}
	host := net.JoinHostPort(n.Name, strconv.Itoa(int(n.Status.DaemonEndpoints.KubeletEndpoint.Port)))
	return &url.URL{Scheme: "https", Host: host, Path: path, RawQuery: query.Encode()}, true
}

// LeadsOut reports whether an address is neither this machine's own nor one of its link alone.
func LeadsOut(ip netip.Addr) bool { return ip.Unmap().IsGlobalUnicast() }

// outside refuses to connect to what does not lead out, by a name that a node says it has.
func outside(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !LeadsOut(at.Addr()) {
		return fmt.Errorf("the node's name leads to %s, which is no address of a node", address)
	}
	return nil
}

// dial connects to where the node with that name says that its agent is.
func (c *Caller) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	name, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, fmt.Errorf("call the agent %q: %w", hostPort, err)
	}
	n, err := c.nodes(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("look up node %s to call its agent: %w", name, err)
	}
	address := node.AgentAddress(n)
	if address == "" {
		return nil, fmt.Errorf("node %s reports no address for its agent any more", name)
	}
	dialer := c.dialer
	if node.Address(n, corev1.NodeInternalIP) == "" && node.Address(n, corev1.NodeExternalIP) == "" {
		dialer.Control = outside // What it says that its IP addresses are was looked at when it said so.
	}
	connection, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return c.add(name, connection), nil
}
