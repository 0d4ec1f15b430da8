package nodecall

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// maxRefusal is how much of an agent's refusal is shown.
const maxRefusal = 1 << 10

// Unreachable says that a node has no agent that could be called.
func Unreachable(nodeName string) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf(
		"the agent of node %s cannot be called: the node reports no address and port for it (simulated nodes have no logs "+
			"and no exec)",
		nodeName,
	))
}

// Way does requests to one node's agent. Who takes it apart to make a connection of a
// request, as proxies do, finds a TLS configuration that asks for that node.
type Way struct {
	http.RoundTripper
	node string
	tls  *tls.Config
}

var (
	_ utilnet.RoundTripperWrapper   = (*Way)(nil)
	_ utilnet.TLSClientConfigHolder = (*Way)(nil)
)

// TransportTo does requests to URLs that URL has made for the node.
func (c *Caller) TransportTo(node string) *Way {
	return &Way{c.Transport(), node, c.identity}
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (w *Way) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

// TLSClientConfig implements utilnet.TLSClientConfigHolder.
func (w *Way) TLSClientConfig() *tls.Config {
	config := w.tls.Clone()
	config.ServerName = w.node
	config.NextProtos = []string{"http/1.1"} // A stream of HTTP/2 cannot become a connection.
	return config
}

// Upgrade makes of a request for the path on the node's agent a connection that speaks
// the protocol.
func (c *Caller) Upgrade(ctx context.Context, n *corev1.Node, path, protocol string) (net.Conn, error) {
	location, ok := c.URL(n, path, nil)
	if !ok {
		return nil, Unreachable(n.Name)
	}
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	plain, err := c.dial(ctx, "tcp", location.Host)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(plain, c.TransportTo(n.Name).TLSClientConfig())
	// The end of the context ends the conversation, whatever it waits for.
	stop := context.AfterFunc(ctx, func() { _ = plain.SetDeadline(time.Unix(1, 0)) })
	upgraded, err := upgrade(ctx, conn, location.String(), protocol)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	return upgraded, nil
}

func upgrade(ctx context.Context, conn *tls.Conn, location, protocol string) (net.Conn, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, location, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", protocol)
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusSwitchingProtocols {
		return &buffered{conn, reader}, nil
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", response.Status, err)
	}
	return nil, fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
}

// buffered is a connection of which something may have been read already.
type buffered struct {
	*tls.Conn
	reader *bufio.Reader
}

// Read implements net.Conn.
func (b *buffered) Read(p []byte) (int, error) { return b.reader.Read(p) }
