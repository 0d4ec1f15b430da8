package dns

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// asker is a client with an address of its own.
type asker struct {
	t    *testing.T
	from string
	to   string
}

func (a asker) dial(network string) net.Conn {
	a.t.Helper()
	d := net.Dialer{Timeout: patient, LocalAddr: &net.UDPAddr{IP: net.ParseIP(a.from)}}
	if network == "tcp" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(a.from)}
	}
	conn, err := d.Dial(network, a.to)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask asks once, for no longer than within.
func (a asker) ask(network, name string, within time.Duration) (*dns.Msg, error) {
	a.t.Helper()
	conn := &dns.Conn{Conn: a.dial(network)}
	_ = conn.SetDeadline(time.Now().Add(within))
	if err := conn.WriteMsg(new(dns.Msg).SetQuestion(name, dns.TypeA)); err != nil {
		return nil, err
	}
	return conn.ReadMsg()
}

// silence is a name server outside that keeps what is asked of it waiting, but knows db.example.com.
func silence(t *testing.T) (address string, waiting *atomic.Int32) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	waiting = new(atomic.Int32)
	running := make(chan struct{})
	server := &dns.Server{PacketConn: conn, NotifyStartedFunc: func() { close(running) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		if r.Question[0].Name != "db.example.com." {
			waiting.Add(1)
			return
		}
		m := new(dns.Msg).SetReply(r)
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.IPv4(192, 0, 2, 7)}}
		_ = w.WriteMsg(m)
	})}
	go func() { _ = server.ActivateAndServe() }()
	<-running
	t.Cleanup(func() { _ = server.Shutdown() })
	return conn.LocalAddr().String(), waiting
}

// One client that asks without end for names that nobody answers for takes nothing from the others.
func TestFloodOfOneClient(t *testing.T) {
	outside, waiting := silence(t)
	s := start(t, outside, objects(1))
	s.watch()
	flood, other := asker{t, "127.0.0.2", s.address}, asker{t, "127.0.0.3", s.address}
	socket := &dns.Conn{Conn: flood.dial("udp")}
	deadline := time.Now().Add(patient)
	for i := 0; waiting.Load() < maxOfClient; i++ {
		for range 50 {
			name := "n" + string(rune('a'+i%26)) + dns.Fqdn(time.Now().Format("150405.000000000")+".example.org")
			if err := socket.WriteMsg(new(dns.Msg).SetQuestion(name, dns.TypeA)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Millisecond)
		if time.Now().After(deadline) {
			t.Fatalf("only %d questions wait outside", waiting.Load())
		}
	}
	for range 3 * maxForwarded {
		if err := socket.WriteMsg(new(dns.Msg).SetQuestion("more.example.org.", dns.TypeA)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"db.example.com.", "web.prod.svc.cluster.local."} {
		var answer *dns.Msg
		var err error
		for range 5 { // The flood may fill the socket for a moment, as any network may lose a question.
			if answer, err = other.ask("udp", name, 5*time.Second); err == nil {
				break
			}
		}
		if err != nil || answer.Rcode != dns.RcodeSuccess || len(answer.Answer) != 1 {
			t.Errorf("%s is answered by %v, %v", name, answer, err)
		}
	}
	if sum := s.server.handler.waiting; sum.taken[netip.MustParseAddr("127.0.0.2")] > maxOfClient {
		t.Errorf("one client has %d places", sum.taken[netip.MustParseAddr("127.0.0.2")])
	}
}

func TestConnectionsOfOneClient(t *testing.T) {
	outside, _ := internet(t)
	s := start(t, outside, objects(1))
	s.watch()
	flood, other := asker{t, "127.0.0.2", s.address}, asker{t, "127.0.0.3", s.address}
	refused := 0
	var kept []net.Conn
	for range maxConnectionsOf + 20 {
		conn := flood.dial("tcp")
		// A question and its answer show that the connection was taken.
		c := &dns.Conn{Conn: conn}
		_ = c.SetDeadline(time.Now().Add(patient))
		err := c.WriteMsg(new(dns.Msg).SetQuestion("web.prod.svc.cluster.local.", dns.TypeA))
		if err == nil {
			_, err = c.ReadMsg()
		}
		if err != nil {
			refused++
		}
		kept = append(kept, conn)
	}
	// The server closes what is idle for some seconds, so that a few more may have been taken.
	if refused == 0 {
		t.Errorf("one client has %d connections", len(kept))
	}
	if answer, err := other.ask("tcp", "web.prod.svc.cluster.local.", patient); err != nil || answer.Rcode != dns.RcodeSuccess {
		t.Errorf("another client is answered by %v, %v", answer, err)
	}
	for _, conn := range kept {
		_ = conn.Close()
	}
	for deadline := time.Now().Add(patient); ; time.Sleep(5 * time.Millisecond) {
		if answer, err := flood.ask("tcp", "web.prod.svc.cluster.local.", patient); err == nil && answer.Rcode == dns.RcodeSuccess {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("places of connections that are closed do not come back")
		}
	}
}

// Whoever is not of this node gets no answer, not even a refusal that he could have sent to somebody else.
func TestNeighboursAreNotAnswered(t *testing.T) {
	outside, asked := internet(t)
	var looks atomic.Int32
	s := start(t, outside, objects(1), func(c *Config) {
		c.Serves = func(client netip.Addr) bool {
			looks.Add(1)
			return client != netip.MustParseAddr("127.0.0.4")
		}
	})
	s.watch()
	neighbour, pod := asker{t, "127.0.0.4", s.address}, asker{t, "127.0.0.5", s.address}
	for _, network := range []string{"udp", "tcp"} {
		for _, name := range []string{"web.prod.svc.cluster.local.", "db.example.com."} {
			if answer, err := neighbour.ask(network, name, 300*time.Millisecond); err == nil {
				t.Errorf("a neighbour is answered by %v", answer)
			}
			if asked.Load() != 0 {
				t.Error("a neighbour's question was passed on")
			}
		}
		if answer, err := pod.ask(network, "web.prod.svc.cluster.local.", patient); err != nil || answer.Rcode != dns.RcodeSuccess {
			t.Errorf("a pod is answered by %v, %v", answer, err)
		}
	}
	if looks.Load() > 4 {
		t.Errorf("it was looked at %d times who two clients are", looks.Load())
	}
	door := newDoorkeeper(func(netip.Addr) bool { return false })
	for i := range 3 * maxKnown {
		door.lets(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), time.Now())
	}
	if len(door.known) > maxKnown {
		t.Errorf("%d clients are remembered", len(door.known))
	}
}
