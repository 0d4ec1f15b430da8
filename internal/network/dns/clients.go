package dns

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxForwarded is how many questions may wait for outside at once, maxOfClient how many of one client. A pod that asks
	// without end takes no more from the others.
	maxForwarded = 1000
	maxOfClient  = 100
	// maxConnections is how many connections there may be at once, maxConnectionsOf how many of one client.
	maxConnections   = 2000
	maxConnectionsOf = 50
	// knownFor is how long it is remembered whether a client is answered, for no more than maxKnown of them.
	knownFor = 10 * time.Second
	maxKnown = 10_000
)

// places are what clients take of something, each no more than its share.
type places struct {
	all, each int

	mu    sync.Mutex
	taken map[netip.Addr]int
	sum   int
}

func newPlaces(all, each int) *places {
	return &places{all: all, each: each, taken: map[netip.Addr]int{}}
}

// take takes a place for the client; false if there is none.
func (p *places) take(client netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sum >= p.all || p.taken[client] >= p.each {
		return false
	}
	p.sum++
	p.taken[client]++
	return true
}

func (p *places) give(client netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum--
	p.taken[client]--
	if p.taken[client] == 0 {
		delete(p.taken, client)
	}
}

// doorkeeper says who is answered.
type doorkeeper struct {
	serves func(netip.Addr) bool

	mu    sync.Mutex
	known map[netip.Addr]opinion
}

type opinion struct {
	serves bool
	until  time.Time
}

func newDoorkeeper(serves func(netip.Addr) bool) *doorkeeper {
	return &doorkeeper{serves: serves, known: map[netip.Addr]opinion{}}
}

func (d *doorkeeper) lets(client netip.Addr, now time.Time) bool {
	if d.serves == nil {
		return true
	}
	d.mu.Lock()
	o, ok := d.known[client]
	d.mu.Unlock()
	if ok && now.Before(o.until) {
		return o.serves
	}
	o = opinion{d.serves(client), now.Add(knownFor)}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= maxKnown {
		clear(d.known) // Senders can be made up.
	}
	d.known[client] = o
	return o.serves
}

// clientOf is who asks.
func clientOf(a net.Addr) netip.Addr {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	case *net.TCPAddr:
		return a.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// guardedListener closes connections of those who are not answered, or have too many.
type guardedListener struct {
	net.Listener
	door        *doorkeeper
	connections *places
}

// Accept implements net.Listener.
func (l guardedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := clientOf(conn.RemoteAddr())
		if l.door.lets(client, time.Now()) && l.connections.take(client) {
			return &guardedConn{Conn: conn, gone: sync.OnceFunc(func() { l.connections.give(client) })}, nil
		}
		_ = conn.Close() // Nothing was said on it.
	}
}

// guardedConn gives its place back when it is closed.
type guardedConn struct {
	net.Conn
	gone func()
}

// Close implements net.Conn.
func (c *guardedConn) Close() error {
	c.gone()
	return c.Conn.Close()
}
