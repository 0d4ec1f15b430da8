package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/network/proxy/nftables"
	"github.com/everynode/everynode/internal/network/proxy/ruleset"
)

var web = types.NamespacedName{Namespace: "default", Name: "web"}

// aService listens at 10.96.0.7, port 80 for TCP and 53 for UDP, and on node ports.
func aService(edit ...func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: web.Name}}
	s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"}, Ports: []corev1.ServicePort{
		{Name: "tcp", Port: 80, Protocol: corev1.ProtocolTCP, NodePort: 30080}, {Name: "udp", Port: 53, Protocol: corev1.ProtocolUDP, NodePort: 30053},
	}}
	for _, e := range edit {
		e(&s.Spec)
	}
	return s
}

// pods of the world, as endpoints.
var addresses = map[string]string{"a": "10.244.1.2", "b": "10.244.1.3", "c": "10.244.2.2"}

// aSlice has the pods as endpoints; a name with a dash before it is not ready, with a
// tilde it is ending but serves.
func aSlice(pods ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: web.Namespace, Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: web.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("tcp"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)},
			{Name: ptr.To("udp"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolUDP)},
		},
	}
	for _, pod := range pods {
		name := strings.TrimLeft(pod, "-~")
		node := "node"
		if name == "c" {
			node = "other"
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{addresses[name]}, NodeName: ptr.To(node),
			Conditions: discoveryv1.EndpointConditions{
				Ready: ptr.To(name == pod), Serving: ptr.To(pod[0] != '-'), Terminating: ptr.To(pod[0] == '~'),
			},
		})
	}
	return s
}

// running is a proxy on the world's node, without the watches.
type running struct {
	*world
	t     *testing.T
	proxy *Proxy
}

func onNode(t *testing.T, detour bool) *running {
	t.Helper()
	w := newWorld(t)
	r := &running{world: w, t: t}
	var without bool
	must(t, w.node.do(func() (err error) {
		without, err = nftables.Prepare()
		if err != nil {
			return err
		}
		filter, err := nftables.New()
		if err != nil {
			return err
		}
		empty := func() cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Service{}, 0, nil)
		}
		r.proxy, err = newProxy(Config{NodeName: "node", ServiceNetwork: netip.MustParsePrefix("10.96.0.0/16"), Services: empty(), EndpointSlices: empty(), Nodes: empty()}, filter, ruleset.Node{Detour: detour})
		return err
	}))
	if without && !detour {
		t.Skip("here the kernel keeps bridged packets from the packet filter; TestDetour is for that")
	}
	r.proxy.moved = r.proxy.tracker.Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}}})
	return r
}

// set makes the Service lead to pods.
func (r *running) set(svc *corev1.Service, pods ...string) {
	r.t.Helper()
	r.proxy.tracker.Service(web, svc)
	r.proxy.tracker.Slice(types.NamespacedName{Namespace: web.Namespace, Name: "web-1"}, aSlice(pods...))
	r.sync()
}

func (r *running) sync() {
	r.t.Helper()
	must(r.t, r.node.do(func() error { return r.proxy.sync(context.Background()) }))
	must(r.t, r.node.do(func() error {
		if intact, err := r.proxy.filter.Intact(context.Background()); err != nil || !intact {
			return fmt.Errorf("the rules are as they were left: %v, %w", intact, err)
		}
		return nil
	}))
}

// expect asks until every wanted answer came, and a few times more, and takes no other one.
func (r *running) expect(from *place, network, address string, want ...string) {
	r.t.Helper()
	wait := patience
	if want[0] == "nothing" {
		wait = impatience
	}
	seen, more := map[string]bool{}, 3
	if len(want) == 1 && (network == "udp" || want[0] == "nothing") {
		more = 1 // the kernel sends few refusals, and silence takes time
	}
	for try := 0; more > 0; try++ {
		if try == 300 {
			r.t.Errorf("%s asks %s %s: in %d answers only %v, want all of %q", from.name, network, address, try, seen, want)
			return
		}
		answer := from.ask(network, address, wait)
		if !slices.Contains(want, answer) {
			r.t.Errorf("%s asks %s %s: got %q, want one of %q", from.name, network, address, answer, want)
			return
		}
		seen[answer] = true
		if len(seen) == len(want) {
			more--
		}
	}
}

const (
	clusterTCP, clusterUDP = "10.96.0.7:80", "10.96.0.7:53"
	nodeTCP, nodeUDP       = "10.0.0.1:30080", "10.0.0.1:30053"
)

// TestClusterIP: from everywhere to everywhere, also to oneself.
func TestClusterIP(t *testing.T) {
	r := onNode(t, false)
	r.set(aService(), "a", "b", "c")
	for network, address := range map[string]string{"tcp": clusterTCP, "udp": clusterUDP} {
		// A pod keeps its address, unless it is led to itself.
		r.expect(r.a, network, address, "a 10.244.1.1", "b 10.244.1.2", "c 10.244.1.2")
		r.expect(r.b, network, address, "a 10.244.1.3", "b 10.244.1.1", "c 10.244.1.3")
		r.expect(r.node, network, address, "a 10.0.1.1", "b 10.0.1.1", "c 10.0.1.1")
		// Somebody outside must get the answer by the way of the question.
		r.expect(r.outside, network, address, "a 10.244.1.1", "b 10.244.1.1", "c 10.0.1.1")
	}
	r.set(aService(), "b")
	r.expect(r.a, "tcp", clusterTCP, "b 10.244.1.2")
	r.set(aService(), "-a", "~c")
	r.expect(r.a, "tcp", clusterTCP, "c 10.244.1.2")
}

// TestDetour is the same where the kernel keeps bridged packets from the packet filter.
func TestDetour(t *testing.T) {
	r := onNode(t, true)
	must(t, r.node.do(func() error { return bridgeFilter("0") }))
	r.set(aService(), "a", "b", "c")
	r.expect(r.a, "tcp", clusterTCP, "a 10.244.1.1", "b 10.244.1.1", "c 10.244.1.2")
	r.expect(r.node, "tcp", clusterTCP, "a 10.0.1.1", "b 10.0.1.1", "c 10.0.1.1")
}

// TestSCTP: the kernel may have no module for it, and other Services must work all
// the same.
func TestSCTP(t *testing.T) {
	r := onNode(t, false)
	many := aService(func(s *corev1.ServiceSpec) {
		s.Ports = append(s.Ports, corev1.ServicePort{Name: "sctp", Port: 80, Protocol: corev1.ProtocolSCTP, NodePort: 30080})
	})
	slice := aSlice("a", "c")
	slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To("sctp"), Port: ptr.To[int32](9999), Protocol: ptr.To(corev1.ProtocolSCTP)})
	r.proxy.tracker.Service(web, many)
	r.proxy.tracker.Slice(types.NamespacedName{Namespace: web.Namespace, Name: "web-1"}, slice)
	r.sync()
	r.expect(r.b, "tcp", clusterTCP, "a 10.244.1.3", "c 10.244.1.3")
	r.expect(r.outside, "tcp", nodeTCP, "a 10.244.1.1", "c 10.0.1.1")
	rules := r.rules()
	for _, want := range []string{
		"10.96.0.7 . sctp . 80 : goto in/default/web/sctp/80", "sctp . 30080 : goto ex/default/web/sctp/80",
		"meta l4proto sctp dnat to 10.244.1.2:9999", "meta l4proto sctp dnat to 10.244.2.2:9999",
	} {
		if !strings.Contains(rules, want) {
			t.Errorf("the rules lack %q:\n%s", want, rules)
		}
	}
	r.set(aService(), "a")
	if rules := r.rules(); strings.Contains(rules, "sctp") {
		t.Errorf("rules of a port that is gone:\n%s", rules)
	}
}

func TestNothingToGoTo(t *testing.T) {
	r := onNode(t, false)
	r.set(aService(), "-a")
	for _, from := range []*place{r.a, r.node, r.outside} {
		for _, to := range [][2]string{{"tcp", clusterTCP}, {"udp", clusterUDP}, {"tcp", nodeTCP}, {"udp", nodeUDP}, {"tcp", "10.96.0.7:81"}} {
			r.expect(from, to[0], to[1], "refused")
		}
	}
	r.set(aService(), "a")
	r.expect(r.b, "tcp", clusterTCP, "a 10.244.1.3")
	r.expect(r.b, "tcp", "10.96.0.7:81", "refused")
	r.set(nil)
	if rules := r.rules(); strings.Contains(rules, "10.96.0.7") || strings.Contains(rules, "default/web") {
		t.Errorf("rules of a service that is gone:\n%s", rules)
	}
}

func TestNodePortAndExternalIP(t *testing.T) {
	r := onNode(t, false)
	r.set(aService(func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{"192.0.2.80"} }), "a", "c")
	for network, list := range map[string][]string{"tcp": {nodeTCP, "192.0.2.80:80"}, "udp": {nodeUDP, "192.0.2.80:53"}} {
		for _, address := range list {
			r.expect(r.outside, network, address, "a 10.244.1.1", "c 10.0.1.1")
			r.expect(r.b, network, address, "a 10.244.1.1", "c 10.0.1.1")
			r.expect(r.node, network, address, "a 10.244.1.1", "c 10.0.1.1")
		}
	}
}

func TestLocalPolicies(t *testing.T) {
	r := onNode(t, false)
	external := func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	internal := func(s *corev1.ServiceSpec) {
		s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	r.set(aService(external), "a", "c")
	r.expect(r.outside, "tcp", nodeTCP, "a 10.0.0.9") // and the client's address is kept
	r.expect(r.outside, "udp", nodeUDP, "a 10.0.0.9")
	r.expect(r.b, "tcp", nodeTCP, "a 10.244.1.3", "c 10.244.1.3")
	r.expect(r.node, "tcp", nodeTCP, "a 10.244.1.1", "c 10.0.1.1")
	r.set(aService(external), "c")
	r.expect(r.outside, "tcp", nodeTCP, "nothing")
	r.expect(r.b, "tcp", nodeTCP, "c 10.244.1.3")
	r.set(aService(internal), "a", "c")
	r.expect(r.b, "tcp", clusterTCP, "a 10.244.1.3")
	r.expect(r.outside, "tcp", nodeTCP, "a 10.244.1.1", "c 10.0.1.1")
	r.set(aService(internal), "c")
	r.expect(r.b, "tcp", clusterTCP, "nothing")
	r.set(aService(internal), "~a", "c")
	r.expect(r.b, "tcp", clusterTCP, "a 10.244.1.3")
}

// TestAffinity: a client stays where it went first, also when other endpoints come and
// go and when all rules are written again.
func TestAffinity(t *testing.T) {
	r := onNode(t, false)
	sticky := aService(func(s *corev1.ServiceSpec) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](600)}}
	})
	r.set(sticky, "a", "c")
	first := r.b.ask("tcp", clusterTCP, patience)
	stays := func(when string) {
		t.Helper()
		for range 20 {
			if again := r.b.ask("tcp", clusterTCP, patience); again != first {
				t.Fatalf("%s: first %q, then %q", when, first, again)
			}
		}
	}
	stays("at once")
	r.set(sticky, "a", "b", "c")
	stays("with another endpoint")
	r.proxy.whole = true
	r.sync()
	stays("after all rules were written")
	if name, _, _ := strings.Cut(first, " "); name == "a" {
		r.set(sticky, "c")
		r.expect(r.b, "tcp", clusterTCP, "c 10.244.1.3")
	} else {
		r.set(sticky, "a")
		r.expect(r.b, "tcp", clusterTCP, "a 10.244.1.3")
	}
}

// TestNobodysAddress: a packet to an address of Services that none has does not leave the node, whoever sits at its default route.
func TestNobodysAddress(t *testing.T) {
	r := onNode(t, false)
	must(t, r.c.do(func() error { return up("lo", "10.96.9.9/32") }))
	r.c.serve(t, "10.96.9.9:80")
	r.set(aService(), "a")
	r.expect(r.b, "tcp", "10.96.9.9:80", "c 10.244.1.3") // nobody says that the network is the cluster's
	api := aService()
	api.Name, api.Spec.ClusterIP, api.Spec.ClusterIPs = "kubernetes", "10.96.0.1", nil
	api.Spec.Type, api.Spec.Ports[0].NodePort, api.Spec.Ports[1].NodePort = corev1.ServiceTypeClusterIP, 0, 0
	r.proxy.tracker.Service(kubernetes, api)
	r.sync()
	for _, from := range []*place{r.b, r.node, r.outside} {
		r.expect(from, "tcp", "10.96.9.9:80", "nothing")
	}
	r.expect(r.b, "udp", "10.96.9.9:80", "nothing")
	r.expect(r.node, "udp", "10.96.9.9:80", "refused") // the kernel tells the sender itself
	r.expect(r.b, "tcp", clusterTCP, "a 10.244.1.3")
	r.expect(r.b, "tcp", "10.96.0.1:80", "refused")
	api.Spec.ClusterIP = "10.97.0.1"
	r.proxy.tracker.Service(kubernetes, api)
	r.sync()
	r.expect(r.b, "tcp", "10.96.9.9:80", "c 10.244.1.3")
}

// TestUDPFollowsThePort: a client that keeps sending is led on when its endpoint gets another port at the same address.
func TestUDPFollowsThePort(t *testing.T) {
	r := onNode(t, false)
	moved := &place{name: "moved", ns: r.a.ns}
	moved.serve(t, addresses["a"]+":9090")
	to := func(port int32) {
		slice := aSlice("a")
		slice.Ports[1].Port = &port
		r.proxy.tracker.Service(web, aService())
		r.proxy.tracker.Slice(types.NamespacedName{Namespace: web.Namespace, Name: "web-1"}, slice)
		r.sync()
	}
	for name, address := range map[string]string{"cluster address": clusterUDP, "node port": nodeUDP} {
		to(8080)
		client := newClient(t, r.outside, address)
		for _, step := range []struct {
			port int32
			want string
		}{{8080, "a"}, {9090, "moved"}, {8080, "a"}} {
			to(step.port)
			if got := client.ask(); got != step.want {
				t.Errorf("%s: %q answers, want %s", name, got, step.want)
			}
		}
	}
}

// client sends from one port of UDP.
type client struct {
	conn  net.Conn
	asked int
}

func newClient(t *testing.T, from *place, address string) *client {
	t.Helper()
	c := &client{}
	must(t, from.do(func() (err error) {
		c.conn, err = net.Dial("udp", address)
		return err
	}))
	t.Cleanup(func() { _ = c.conn.Close() })
	return c
}

// ask returns who answers.
func (c *client) ask() string {
	for deadline := time.Now().Add(patience); ; {
		c.asked++
		line, err := talk(c.conn, fmt.Sprintf("%d: ", c.asked), time.Second)
		if err == nil || time.Now().After(deadline) {
			host, _, _ := strings.Cut(line, " ")
			return host
		}
	}
}

// TestUDPFollows: a client that keeps sending from one port is led on when its
// endpoint goes, and when the first one comes.
func TestUDPFollows(t *testing.T) {
	r := onNode(t, false)
	for name, address := range map[string]string{"cluster address": clusterUDP, "node port": nodeUDP} {
		r.set(aService(), "a")
		client := newClient(t, r.outside, address)
		for _, pod := range []string{"a", "c", "b"} {
			r.set(aService(), pod)
			if got := client.ask(); got != pod {
				t.Errorf("%s: %q answers, want %s", name, got, pod)
			}
		}
	}
}

// TestManyChanges: rules changed step by step lead where they should, and leave
// nothing behind.
func TestManyChanges(t *testing.T) {
	r := onNode(t, false)
	for range 3 {
		for _, pods := range [][]string{{"a"}, {"a", "b"}, {"b", "c"}, {"c"}, nil, {"a", "b", "c"}} {
			r.set(aService(), pods...)
		}
	}
	r.expect(r.b, "tcp", clusterTCP, "a 10.244.1.3", "b 10.244.1.1", "c 10.244.1.3")
	stepwise := r.rules()
	r.proxy.whole = true
	r.sync()
	if again := r.rules(); again != stepwise {
		t.Errorf("step by step:\n%s\nas a whole:\n%s", stepwise, again)
	}
	// Somebody empties the packet filter.
	must(t, r.node.do(func() error { return nft("flush ruleset\n") }))
	must(t, r.node.do(func() error { return r.proxy.check(context.Background()) }))
	r.sync()
	r.expect(r.b, "tcp", clusterTCP, "a 10.244.1.3", "b 10.244.1.1", "c 10.244.1.3")
	for range 2 {
		must(t, r.node.do(func() error { return Leave(context.Background()) }))
	}
	if rules := r.rules(); strings.Contains(rules, "everynode") {
		t.Errorf("after it left:\n%s", rules)
	}
}

// TestLoadBalancer: the balancer's address lets only some in, and nodes say whether
// they have endpoints.
func TestLoadBalancer(t *testing.T) {
	r := onNode(t, false)
	balanced := func(from string) *corev1.Service {
		s := aService(func(s *corev1.ServiceSpec) {
			s.Type, s.ExternalTrafficPolicy, s.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 32000
			s.LoadBalancerSourceRanges = []string{from}
		})
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
		return s
	}
	healthy := func() (answer string) {
		must(t, r.outside.do(func() error {
			conn, err := net.DialTimeout("tcp", "10.0.0.1:32000", patience)
			if err != nil {
				return err
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
				return err
			}
			answer, err = talk(conn, "", patience)
			return err
		}))
		return answer
	}
	r.set(balanced("10.0.0.0/24"), "a", "c")
	r.expect(r.outside, "tcp", "203.0.113.7:80", "a 10.0.0.9")
	if got := healthy(); got != "HTTP/1.0 200 OK" {
		t.Errorf("with an endpoint the node says %q", got)
	}
	// An endpoint that ends is for those who are sent here all the same; nobody should be.
	r.set(balanced("10.0.0.0/24"), "~a", "c")
	r.expect(r.outside, "tcp", "203.0.113.7:80", "a 10.0.0.9")
	if got := healthy(); got != "HTTP/1.0 503 Service Unavailable" {
		t.Errorf("with an endpoint that ends the node says %q", got)
	}
	r.set(balanced("192.0.2.0/24"), "c")
	r.expect(r.outside, "tcp", "203.0.113.7:80", "nothing")
	if got := healthy(); got != "HTTP/1.0 503 Service Unavailable" {
		t.Errorf("without an endpoint the node says %q", got)
	}
	r.set(nil)
	if got := r.outside.ask("tcp", "10.0.0.1:32000", patience); got != "refused" {
		t.Errorf("without the service the node says %q", got)
	}
}
