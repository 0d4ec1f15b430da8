package nodecall

import (
	"net"
	"sync"
)

// connections are the open ones to agents, by node.
type connections struct {
	mu   sync.Mutex
	open map[string]map[*connection]bool
}

// connection leaves the list when it is closed.
type connection struct {
	net.Conn
	node string
	of   *connections
}

func (c *connections) add(node string, conn net.Conn) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &connection{Conn: conn, node: node, of: c}
	if c.open == nil {
		c.open = map[string]map[*connection]bool{}
	}
	if c.open[node] == nil {
		c.open[node] = map[*connection]bool{}
	}
	c.open[node][out] = true
	return out
}

// to lists the open connections to a node's agent.
func (c *connections) to(node string) (out []*connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open[node] {
		out = append(out, conn)
	}
	return out
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open[c.node], c)
	if len(c.of.open[c.node]) == 0 {
		delete(c.of.open, c.node)
	}
	c.of.mu.Unlock()
	return c.Conn.Close()
}
