package podaccess

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/everynode/everynode/internal/apiserver/nodecall"
	"github.com/everynode/everynode/internal/node/tunnel"
)

// dialTimeout is how long a connection may take.
const dialTimeout = 10 * time.Second

// Access reaches pods.
type Access struct {
	agents    *nodecall.Caller
	nodes     func(ctx context.Context, name string) (*corev1.Node, error)
	transport *http.Transport
}

// New reaches pods through the agents; nodes reads a Node.
func New(agents *nodecall.Caller, nodes func(ctx context.Context, name string) (*corev1.Node, error)) *Access {
	a := &Access{agents: agents, nodes: nodes}
	a.transport = utilnet.SetTransportDefaults(&http.Transport{
		// Who asks for a pod or a node through the API chooses it by its name, and
		// knows no certificate of it. The server sends no identity of its own along.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // See above.
		DialContext:     a.Dial, Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	})
	return a
}

// Transport leads to pods by their PodHost, and to other hosts.
func (a *Access) Transport() *http.Transport { return a.transport }

// DialService connects to what Services leads to. What a Service calls by an external
// name must not be this machine, or what only it reaches: who may write a Service that
// a webhook or an APIService names could have the server talk to itself, or to the
// machine's cloud, in its own name.
func (a *Access) DialService(ctx context.Context, network, hostPort string) (net.Conn, error) {
	if _, _, ok := parsePodHost(hostPort); ok {
		return a.Dial(ctx, network, hostPort)
	}
	d := net.Dialer{
		Timeout: dialTimeout,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			found, err := netip.ParseAddrPort(address)
			if err == nil {
				_, err = Proxyable(found.Addr().String())
			}
			if err != nil {
				return fmt.Errorf("the Service leads to %s (%s): %w", hostPort, address, err)
			}
			return nil
		},
	}
	return d.DialContext(ctx, network, hostPort)
}

// Dial connects to what PodHost stands for, through the agent of the node, or to any
// other host as usual. Pods on the network of their node have its address, and are
// reached without the agent.
func (a *Access) Dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	nodeName, address, ok := parsePodHost(hostPort)
	if !ok {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, hostPort)
	}
	n, err := a.nodes(ctx, nodeName)
	if err != nil {
		return nil, fmt.Errorf("dial %s %s on node %s: %w", network, address, nodeName, err)
	}
	if slices.ContainsFunc(n.Status.Addresses, func(x corev1.NodeAddress) bool {
		return x.Address == address.Addr().String()
	}) {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address.String())
	}
	conn, err := a.agents.Upgrade(ctx, n, tunnel.To(address), tunnel.Protocol)
	if err != nil {
		return nil, fmt.Errorf("dial %s %s through the agent of node %s: %w", network, address, nodeName, err)
	}
	return conn, nil
}
