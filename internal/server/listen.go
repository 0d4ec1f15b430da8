package server

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// listen opens every address, or none.
func listen(addresses []string) (net.Listener, error) {
	group := &listeners{accepted: make(chan accept), done: make(chan struct{})}
	for _, address := range addresses {
		l, err := net.Listen("tcp", address)
		if err != nil {
			group.Close()
			switch {
			case errors.Is(err, syscall.EADDRINUSE):
				return nil, fmt.Errorf(
					"the address %s is in use by another process; stop that one, or choose another --listen address", address,
				)
			case errors.Is(err, syscall.EADDRNOTAVAIL):
				return nil, fmt.Errorf("the address %s does not belong to this machine; choose another --listen address", address)
			case errors.Is(err, syscall.EACCES):
				return nil, fmt.Errorf("the address %s may not be used without root; choose a --listen port above 1023", address)
			}
			return nil, fmt.Errorf("listen on %s: %w; give --listen as IP:PORT", address, err)
		}
		group.all = append(group.all, l)
	}
	if len(group.all) == 1 {
		return group.all[0], nil
	}
	for _, l := range group.all {
		go group.accept(l)
	}
	return group, nil
}

// listeners is several listeners that look like one.
type listeners struct {
	all      []net.Listener
	accepted chan accept
	done     chan struct{}
	once     sync.Once
}

type accept struct {
	conn net.Conn
	err  error
}

func (g *listeners) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		select {
		case g.accepted <- accept{conn, err}:
		case <-g.done:
			if conn != nil {
				conn.Close()
			}
			return
		}
		if err != nil {
			return
		}
	}
}

// Accept implements net.Listener.
func (g *listeners) Accept() (net.Conn, error) {
	select {
	case a := <-g.accepted:
		return a.conn, a.err
	case <-g.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (g *listeners) Close() error {
	var errs []error
	g.once.Do(func() {
		close(g.done)
		for _, l := range g.all {
			errs = append(errs, l.Close())
		}
	})
	return errors.Join(errs...)
}

// Addr implements net.Listener: the first address.
func (g *listeners) Addr() net.Addr { return g.all[0].Addr() }
