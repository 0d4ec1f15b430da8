package dns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
	"k8s.io/klog/v2"
)

// DefaultDomain is the domain of a cluster that nobody has named.
const DefaultDomain = "cluster.local"

// Config says what the name server knows and where it answers.
type Config struct {
	// Addresses are where it answers, over UDP and TCP; the first is the one that
	// it tells of itself.
	Addresses []netip.AddrPort
	// Domain is the cluster's domain.
	Domain string
	// Objects are the caches that answers come from. New adds indices to them; they
	// are to be started after that.
	Objects Objects
	// Known is what answers come from until everything was listed once; nil for none.
	Known *Known
	// Prepare is called before Addresses are listened at, and now and then later, to
	// make the machine have them; nil for addresses that are there.
	Prepare func() error
	// Serves says whether a client is answered at all; nil for everybody. What it said is remembered for a few seconds.
	Serves func(client netip.Addr) bool
	// ResolvConf is the resolver file with the name servers for all other names.
	ResolvConf string
}

// Server is the name server of a node.
type Server struct {
	config   Config
	handler  *handler
	upstream *upstream
	// connections are the places of connections.
	connections *places
	// listening is told, for tests, where the server answers.
	listening func([]net.Addr)
}

// retryListen is how long to wait for an address that cannot be listened at, and
// prepareEvery how often the machine is looked at whether it still has it.
const (
	retryListen  = 2 * time.Second
	prepareEvery = time.Minute
)

// New prepares a name server.
func New(config Config) (*Server, error) {
	if len(config.Addresses) == 0 || config.Domain == "" || config.ResolvConf == "" {
		return nil, errors.New("a name server needs an address, a domain and a resolver file")
	}
	memory, err := newMemory(config)
	if err != nil {
		return nil, err
	}
	config.Known = nil // the memory drops it in time
	var own []netip.Addr
	for _, a := range config.Addresses {
		if !a.Addr().IsLoopback() {
			own = append(own, a.Addr())
		}
	}
	if config.Prepare == nil {
		config.Prepare = func() error { return nil }
	}
	u := newUpstream(config.ResolvConf, own)
	return &Server{config: config, upstream: u, connections: newPlaces(maxConnections, maxConnectionsOf),
		handler: &handler{memory: memory, outside: u, door: newDoorkeeper(config.Serves),
			waiting: newPlaces(maxForwarded, maxOfClient), echoes: &u.echoes}}, nil
}

// Run answers until ctx ends. An address that is missing or taken is tried again:
// pods on the node wait for nothing else.
func (s *Server) Run(ctx context.Context) error {
	go s.upstream.run(ctx)
	for {
		err := s.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		klog.FromContext(ctx).Error(err, "The node's name server does not answer; trying again", "in", retryListen)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryListen):
		}
	}
}

// serve listens at every address until ctx ends or one of them fails.
func (s *Server) serve(ctx context.Context) error {
	var servers []*dns.Server
	var sockets []io.Closer
	var where []net.Addr
	defer func() {
		for _, server := range servers {
			_ = server.Shutdown() // It fails only for one that is not running.
		}
		for _, socket := range sockets {
			_ = socket.Close() // Mostly closed by now.
		}
	}()
	if err := s.config.Prepare(); err != nil {
		return err
	}
	for _, address := range s.config.Addresses {
		tcp, udp, err := listen(ctx, address)
		if err != nil {
			return err
		}
		sockets, where = append(sockets, tcp, udp), append(where, tcp.Addr())
		servers = append(servers, &dns.Server{PacketConn: udp, Handler: s.handler},
			&dns.Server{Listener: guardedListener{tcp, s.handler.door, s.connections}, Handler: s.handler})
	}
	failed := make(chan error, len(servers))
	for _, server := range servers {
		running := make(chan struct{})
		server.NotifyStartedFunc = func() { close(running) }
		go func() { failed <- server.ActivateAndServe() }()
		select {
		case <-running:
		case err := <-failed:
			return fmt.Errorf("answer questions: %w", err)
		}
	}
	klog.FromContext(ctx).V(1).Info("Answering questions for names", "addresses", s.config.Addresses)
	if s.listening != nil {
		s.listening(where)
	}
	again := time.NewTicker(prepareEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("answer questions: %w", err)
		case <-again.C:
			if err := s.config.Prepare(); err != nil {
				return err
			}
		}
	}
}

// listen opens an address for both protocols.
func listen(ctx context.Context, address netip.AddrPort) (net.Listener, net.PacketConn, error) {
	var config net.ListenConfig
	tcp, err := config.Listen(ctx, "tcp", address.String())
	if err != nil {
		return nil, nil, fmt.Errorf("listen for questions: %w", err)
	}
	// Port 0, for tests, becomes the same one for both.
	udp, err := config.ListenPacket(ctx, "udp", tcp.Addr().String())
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listen for questions: %w", err), tcp.Close())
	}
	return tcp, udp, nil
}
