package etcd

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// door is the port for the other members. It takes nobody else.
type door struct {
	server  *http.Server
	handler atomic.Pointer[http.Handler]
}

// openDoor opens it; who comes in is led to the handler of the moment.
func openDoor(p *Peers, handler http.Handler) (*door, error) {
	listener, err := net.Listen("tcp", p.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for the other servers on %s: %w; choose another --peer-address", p.Listen, err)
	}
	d := &door{}
	d.lead(handler)
	// Whoever shows no certificate soon is no member, and holds no connection.
	d.server = &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*d.handler.Load()).ServeHTTP(w, r) }),
		ReadHeaderTimeout: peerHandshake, ReadTimeout: 5 * time.Minute, ErrorLog: log.New(io.Discard, "", 0),
	}
	go func() { _ = d.server.Serve(tls.NewListener(listener, p.Keys.ServerTLS())) }() // it ends when it is closed
	return d, nil
}

func (d *door) lead(to http.Handler) { d.handler.Store(&to) }

// close closes it, and what is open there.
func (d *door) close() {
	if d != nil {
		_ = d.server.Close()
	}
}
