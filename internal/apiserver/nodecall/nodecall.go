// Package nodecall is the API server's way to the agents of nodes. An agent is
// called by its node's name: the name is the host of the URL, the address comes
// from the Node, and the connection stands only when the agent proves that it is
// that node's. So an address that a node reports, wherever it leads, is never more
// than a place to knock at.
package nodecall

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
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
	transport *http.Transport
}

// New makes a Caller. Identity is what agents know the API server by, and verifies
// that the agent is the node's in its ServerName; nodes reads a Node.
func New(identity *tls.Config, nodes func(ctx context.Context, name string) (*corev1.Node, error)) *Caller {
	c := &Caller{nodes: nodes, dialer: net.Dialer{Timeout: dialPatience}}
	c.transport = utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: identity.Clone(), DialContext: c.dial, IdleConnTimeout: 90 * time.Second,
		// A proxy of the environment is for the way out, not for the way to nodes.
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	})
	return c
}

// Transport does requests to URLs that URL has made.
func (c *Caller) Transport() *http.Transport { return c.transport }

// URL leads to a path on the node's agent; ok is false when the node reports none,
// as simulated nodes do.
func (c *Caller) URL(n *corev1.Node, path string, query url.Values) (location *url.URL, ok bool) {
	if node.AgentAddress(n) == "" {
		return nil, false
	}
	host := net.JoinHostPort(n.Name, strconv.Itoa(int(n.Status.DaemonEndpoints.KubeletEndpoint.Port)))
	return &url.URL{Scheme: "https", Host: host, Path: path, RawQuery: query.Encode()}, true
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
	return c.dialer.DialContext(ctx, network, address)
}
