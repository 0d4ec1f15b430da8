package dns

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/util/wait"
)

// TestNameServerThatAsksBack has the node's name server forward all questions to the node's own, as a resolver on the
// machine does that somebody has pointed at the cluster's.
func TestNameServerThatAsksBack(t *testing.T) {
	home := make(chan string, 1)
	address := outsider(t, func(w dns.ResponseWriter, r *dns.Msg) {
		to := <-home
		home <- to
		reply, _, err := (&dns.Client{Timeout: time.Second}).Exchange(r.Copy(), to)
		if err == nil {
			_ = w.WriteMsg(reply)
		}
	})
	s := start(t, address, nil)
	home <- s.address
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patient, true,
		func(context.Context) (bool, error) { return s.server.upstream.current.Load() == nil, nil })
	if err != nil {
		t.Fatal("a name server that asks back is asked on")
	}
	if reply := s.ask("udp", "A", "db.example.com."); reply.Rcode != dns.RcodeServerFailure {
		t.Errorf("a name that nobody else may know: %v", reply)
	}
}

func TestOnlyNameServersThatAskBackAreLeftOut(t *testing.T) {
	var asks atomic.Int32
	var back atomic.Bool
	path := filepath.Join(t.TempDir(), "resolv.conf")
	u := newUpstream(path, nil)
	address := outsider(t, func(w dns.ResponseWriter, r *dns.Msg) {
		asks.Add(1)
		if back.Load() {
			u.echoes.hears(r.Question[0].Name)
		}
		_ = w.WriteMsg(new(dns.Msg).SetRcode(r, dns.RcodeNameError))
	})
	u.port = address[strings.LastIndexByte(address, ':')+1:]
	defer u.replace(nil)
	// Nobody answers at the second.
	if err := os.WriteFile(path, []byte("nameserver 127.0.0.1\nnameserver 127.0.0.2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := u.reread(); err != nil {
		t.Fatal(err)
	}
	all, now := u.current.Load(), time.Now()
	back.Store(true)
	err := u.leaveOut(t.Context(), now)
	if err == nil || !strings.Contains(err.Error(), net.JoinHostPort("127.0.0.1", u.port)+" ask") {
		t.Fatalf("one that asks back: %v", err)
	}
	rest := u.current.Load()
	if rest == nil || rest == all {
		t.Error("the other is not asked, or both are")
	}
	back.Store(false)
	if err := u.leaveOut(t.Context(), now.Add(echoAgain-1)); err == nil || asks.Load() != 1 {
		t.Errorf("it is looked at again at once: %v", err)
	}
	if err := u.leaveOut(t.Context(), now.Add(echoAgain)); err != nil || u.current.Load() == rest {
		t.Errorf("it does not ask back any more: %v", err)
	}
	if err := u.leaveOut(t.Context(), now.Add(time.Hour)); err != nil || asks.Load() != 2 {
		t.Errorf("those that do not ask back are looked at again: %v, %d times", err, asks.Load())
	}
}
