package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2/ktesting"
)

const patient = time.Minute

// objects are a cluster with a Service, a headless one and an external name.
func objects(endpoints int) []runtime.Object {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "prod", Name: name} }
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta("fleet-1"), AddressType: discoveryv1.AddressTypeIPv4}
	slice.Labels = map[string]string{discoveryv1.LabelServiceName: "fleet"}
	host := "n1"
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.244.0.1"}, Hostname: &host})
	for i := 1; i < endpoints; i++ {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.%d.%d", i/250, i%250+1)}})
	}
	return []runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}, slice,
		&corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.20", ClusterIPs: []string{"10.96.0.20"}}},
		&corev1.Service{ObjectMeta: meta("fleet"), Spec: corev1.ServiceSpec{ClusterIP: "None", ClusterIPs: []string{"None"}}},
		&corev1.Service{ObjectMeta: meta("near"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "web.prod.svc.cluster.local"}},
		&corev1.Service{ObjectMeta: meta("far"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"}},
		&corev1.Service{ObjectMeta: meta("circle"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "circle.prod.svc.cluster.local"}},
	}
}

// internet is a name server that knows db.example.com, and counts questions, without echoes.
func internet(t *testing.T) (address string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	return outsider(t, func(w dns.ResponseWriter, r *dns.Msg) {
		if r.Question[0].Qtype != dns.TypeHINFO {
			asked.Add(1)
		}
		m := new(dns.Msg).SetRcode(r, dns.RcodeNameError)
		if q := r.Question[0]; q.Name == "db.example.com." && q.Qtype == dns.TypeA {
			m.Rcode = dns.RcodeSuccess
			header := dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}
			m.Answer = []dns.RR{&dns.A{Hdr: header, A: net.IPv4(192, 0, 2, 7)}}
		}
		_ = w.WriteMsg(m)
	}), asked
}

// outsider is a name server that answers as it is told.
func outsider(t *testing.T, answer dns.HandlerFunc) (address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{})
	server := &dns.Server{PacketConn: conn, NotifyStartedFunc: func() { close(running) }, Handler: answer}
	go func() { _ = server.ActivateAndServe() }()
	<-running
	t.Cleanup(func() { _ = server.Shutdown() })
	return conn.LocalAddr().String()
}

// started is a running name server and how to stop what it watches with.
type started struct {
	t       *testing.T
	address string
	server  *Server
	client  *fake.Clientset
	watch   func()
}

// start runs a name server over a fake API. It does not watch before watch is called.
func start(t *testing.T, outside string, all []runtime.Object, change ...func(*Config)) *started {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	client := fake.NewClientset(all...)
	factory := informers.NewSharedInformerFactory(client, 0)
	watched := Objects{
		Services: factory.Core().V1().Services().Informer(), EndpointSlices: factory.Discovery().V1().EndpointSlices().Informer(),
		Namespaces: factory.Core().V1().Namespaces().Informer(),
	}
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 127.0.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := Config{Addresses: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}, Domain: DefaultDomain, Objects: watched, ResolvConf: resolv}
	for _, c := range change {
		c(&config)
	}
	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	// A resolver file cannot name a port.
	server.upstream.port = outside[strings.LastIndexByte(outside, ':')+1:]
	if err := server.upstream.reread(); err != nil {
		t.Fatal(err)
	}
	where := make(chan string, 1)
	server.listening = func(all []net.Addr) { where <- all[0].String() }
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		factory.Shutdown()
	})
	s := &started{t: t, server: server, client: client, watch: func() {
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
	}}
	select {
	case s.address = <-where:
	case err := <-done:
		t.Fatalf("the name server ended: %v", err)
	}
	return s
}

func (s *started) ask(network, kind, name string) *dns.Msg {
	s.t.Helper()
	client := &dns.Client{Net: network, Timeout: patient}
	reply, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, dns.StringToType[kind]), s.address)
	if err != nil {
		s.t.Fatalf("ask for %s: %v", name, err)
	}
	return reply
}

// short is a reply in one line: the code, and the sorted ends of its answers.
func short(m *dns.Msg) string {
	out := []string{}
	for _, r := range m.Answer {
		out = append(out, dns.TypeToString[r.Header().Rrtype]+" "+strings.TrimPrefix(r.String(), r.Header().String()))
	}
	slices.Sort(out)
	return strings.TrimSpace(dns.RcodeToString[m.Rcode] + " " + strings.Join(out, " "))
}

func TestAnswersOverTheWire(t *testing.T) {
	outside, asked := internet(t)
	s := start(t, outside, objects(2))
	if got := short(s.ask("udp", "A", "web.prod.svc.cluster.local.")); got != "SERVFAIL" {
		t.Errorf("before anything was watched the answer is %s, want one that nobody remembers", got)
	}
	if got := short(s.ask("udp", "A", "db.example.com.")); got != "NOERROR A 192.0.2.7" {
		t.Errorf("names outside need no watch, got %s", got)
	}
	s.watch()
	for _, network := range []string{"udp", "tcp"} {
		for _, c := range []struct{ kind, name, want string }{
			{"A", "web.prod.svc.cluster.local.", "NOERROR A 10.96.0.20"},
			{"A", "web.nowhere.svc.cluster.local.", "NXDOMAIN"},
			{"AAAA", "web.prod.svc.cluster.local.", "NOERROR"},
			{"A", "fleet.prod.svc.cluster.local.", "NOERROR A 10.244.0.1 A 10.244.0.2"},
			{"A", "n1.fleet.prod.svc.cluster.local.", "NOERROR A 10.244.0.1"},
			{"PTR", "20.0.96.10.in-addr.arpa.", "NOERROR PTR web.prod.svc.cluster.local."},
			{"PTR", "1.0.244.10.in-addr.arpa.", "NOERROR PTR n1.fleet.prod.svc.cluster.local."},
			{"A", "near.prod.svc.cluster.local.", "NOERROR A 10.96.0.20 CNAME web.prod.svc.cluster.local."},
			{"A", "far.prod.svc.cluster.local.", "NOERROR A 192.0.2.7 CNAME db.example.com."},
			{"A", "1-2-3-4.prod.pod.cluster.local.", "NOERROR A 1.2.3.4"},
		} {
			if got := short(s.ask(network, c.kind, c.name)); got != c.want {
				t.Errorf("%s %s over %s: got %s, want %s", c.kind, c.name, network, got, c.want)
			}
		}
	}
	if got := short(s.ask("udp", "A", "circle.prod.svc.cluster.local.")); !strings.HasPrefix(got, "SERVFAIL") {
		t.Errorf("a name that is an alias of itself gives %s", got)
	}
	before := asked.Load()
	if got := short(s.ask("udp", "A", "db.example.com.")); got != "NOERROR A 192.0.2.7" || asked.Load() != before {
		t.Errorf("asked again: %s, and outside was asked %d times more", got, asked.Load()-before)
	}
	if got := short(s.ask("udp", "A", "nobody.example.com.")); got != "NXDOMAIN" {
		t.Errorf("an unknown name outside gives %s", got)
	}
}

// TestWithoutTheAPI: what was known serves until everything was listed, and no longer.
func TestWithoutTheAPI(t *testing.T) {
	outside, _ := internet(t)
	known := &Known{}
	for _, obj := range objects(2) {
		switch o := obj.(type) {
		case *corev1.Namespace:
			known.Namespaces = append(known.Namespaces, o)
		case *discoveryv1.EndpointSlice:
			known.EndpointSlices = append(known.EndpointSlices, o)
		case *corev1.Service:
			known.Services = append(known.Services, o)
		}
	}
	s := start(t, outside, objects(3)[:2], func(c *Config) { c.Known = known })
	ask := func(kind, name, want string) {
		t.Helper()
		if got := short(s.ask("udp", kind, name)); got != want {
			t.Errorf("%s %s: got %s, want %s", kind, name, got, want)
		}
	}
	ask("A", "web.prod.svc.cluster.local.", "NOERROR A 10.96.0.20")
	ask("A", "fleet.prod.svc.cluster.local.", "NOERROR A 10.244.0.1 A 10.244.0.2")
	ask("A", "nobody.prod.svc.cluster.local.", "NXDOMAIN")
	ask("A", "near.prod.svc.cluster.local.", "NOERROR A 10.96.0.20 CNAME web.prod.svc.cluster.local.")
	ask("A", "1-2-3-4.prod.pod.cluster.local.", "NOERROR A 1.2.3.4")
	ask("PTR", "1.0.244.10.in-addr.arpa.", "NOERROR PTR n1.fleet.prod.svc.cluster.local.")
	s.watch()
	ask("A", "web.prod.svc.cluster.local.", "NXDOMAIN")
}

func TestAnswersFollowTheCluster(t *testing.T) {
	outside, _ := internet(t)
	s := start(t, outside, objects(2))
	s.watch()
	slice, err := s.client.DiscoveryV1().EndpointSlices("prod").Get(t.Context(), "fleet-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	no := false
	slice = slice.DeepCopy()
	slice.Endpoints[0].Conditions.Ready = &no
	if _, err := s.client.DiscoveryV1().EndpointSlices("prod").Update(t.Context(), slice, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patient); ; time.Sleep(5 * time.Millisecond) {
		got := short(s.ask("udp", "A", "fleet.prod.svc.cluster.local."))
		if got == "NOERROR A 10.244.0.2" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("an endpoint that is not ready is still there: %s", got)
		}
	}
}

func TestLargeAnswersAreCutForUDPOnly(t *testing.T) {
	outside, _ := internet(t)
	s := start(t, outside, objects(600))
	s.watch()
	small := s.ask("udp", "A", "fleet.prod.svc.cluster.local.")
	small.Compress = true
	if !small.Truncated || len(small.Answer) == 0 || small.Len() > dns.MinMsgSize {
		t.Errorf("over UDP: %d records in %d bytes, truncated %t", len(small.Answer), small.Len(), small.Truncated)
	}
	if all := s.ask("tcp", "A", "fleet.prod.svc.cluster.local."); all.Truncated || len(all.Answer) != 600 {
		t.Errorf("over TCP: %d records, truncated %t", len(all.Answer), all.Truncated)
	}
}

func TestServersInResolverFile(t *testing.T) {
	got, err := serversIn([]byte("search a b\nnameserver 10.96.0.10\nnameserver 192.0.2.1\nnameserver fd00::1\nnameserver nonsense\n"), []netip.Addr{netip.MustParseAddr("10.96.0.10")}, "53")
	if want := []string{"192.0.2.1:53", "[fd00::1]:53"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("servers are %v (%v), want %v", got, err, want)
	}
}
