package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/node/peer"
	"github.com/everynode/everynode/internal/testenv/needs"
)

// box is a network namespace: do runs functions in it, one after the other. It
// ends with the test, and with it all that is in it.
type box struct {
	t    *testing.T
	name string
	ns   netns.NsHandle
	work chan func()
}

func newBox(t *testing.T, name string) *box {
	t.Helper()
	b := &box{t: t, name: name, work: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			b.ns, err = netns.Get()
		}
		ready <- err
		for f := range b.work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { close(b.work); _ = b.ns.Close() })
	b.do(func() error { return b.up("lo", "") })
	b.do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) })
	return b
}

func (b *box) do(f func() error) {
	b.t.Helper()
	done := make(chan error)
	b.work <- func() { done <- f() }
	if err := <-done; err != nil {
		b.t.Fatalf("in %s: %v", b.name, err)
	}
}

// up sets a link up, with an address like 10.0.0.1/24 unless that is empty.
func (*box) up(link, address string) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	if address != "" {
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := netlink.AddrReplace(l, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

func (*box) route(to, via string) error {
	dst, err := netlink.ParseIPNet(to)
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)})
}

func (b *box) bridge(name, address string) {
	b.t.Helper()
	b.do(func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			return err
		}
		return b.up(name, address)
	})
}

// plug connects the link eth0 of a new box to a bridge of this one.
func (b *box) plug(bridge string, other *box, address, gateway string) {
	b.t.Helper()
	port := "p-" + other.name
	b.do(func() error {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port, MasterIndex: master.Attrs().Index}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(other.ns))}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		return b.up(port, "")
	})
	other.do(func() error { return other.up("eth0", address) })
	other.do(func() error { return other.route("0.0.0.0/0", gateway) })
}

// haveTunnels says whether the kernel can make them.
func haveTunnels() (bool, error) {
	trial := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "trial"}, VxlanId: 1}
	err := netlink.LinkAdd(trial)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, netlink.LinkDel(trial)
}

// machineBox is a node with one pod.
type machineBox struct {
	*box
	object *corev1.Node
	pod    *box
	podIP  string
	net    *Network
}

// cluster is links 10.0.1.0/24 and 10.0.2.0/24 with a router between them.
func cluster(t *testing.T, mode Mode, addresses ...string) []*machineBox {
	t.Helper()
	needs.Root(t, "a network namespace needs root")
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	router := newBox(t, "router")
	var tunnels bool
	router.do(func() (err error) { tunnels, err = haveTunnels(); return err })
	if !tunnels {
		t.Skip("the kernel has no VXLAN links")
	}
	router.bridge("link1", "10.0.1.254/24")
	router.bridge("link2", "10.0.2.254/24")
	var nodes []*machineBox
	for i, ip := range addresses {
		n := &machineBox{box: newBox(t, fmt.Sprintf("n%d", i)), pod: newBox(t, fmt.Sprintf("pod%d", i)), podIP: fmt.Sprintf("10.244.%d.2", i)}
		link := strings.Split(ip, ".")[2]
		router.plug("link"+link, n.box, ip+"/24", "10.0."+link+".254")
		n.bridge(bridge, fmt.Sprintf("10.244.%d.1/24", i))
		n.plug(bridge, n.pod, n.podIP+"/24", fmt.Sprintf("10.244.%d.1", i))
		n.object = aNode(n.name, fmt.Sprintf("10.244.%d.0/24", i), ip)
		n.start(mode)
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		n.meet(nodes...)
	}
	return nodes
}

// start is a new agent on the machine.
func (n *machineBox) start(mode Mode) {
	n.t.Helper()
	m, err := newMachine()
	if err != nil {
		n.t.Fatal(err)
	}
	n.net = newNetwork(Config{NodeName: n.name, Mode: mode, ConfDir: filepath.Join(n.t.TempDir(), "net.d")}, m)
}

// meet makes nodes known and applies what follows.
func (n *machineBox) meet(others ...*machineBox) {
	n.t.Helper()
	for _, o := range others {
		say(n.net, o.object, false)
	}
	n.do(func() error { return n.net.sync(context.Background(), true) })
}

// reaches sends a datagram from a box to a pod and waits for it to come back;
// sender is the address that the pod sees.
func reaches(t *testing.T, from *box, to *machineBox, size int) (sender string, err error) {
	t.Helper()
	var server net.PacketConn
	to.pod.do(func() (err error) { server, err = net.ListenPacket("udp4", to.podIP+":0"); return err })
	defer server.Close()
	seen := make(chan string, 64)
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, address, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			seen <- address.(*net.UDPAddr).IP.String()
			_, _ = server.WriteTo(buffer[:n], address)
		}
	}()
	var client net.Conn
	from.do(func() (err error) { client, err = net.Dial("udp4", server.LocalAddr().String()); return err })
	defer client.Close()
	answer := make([]byte, 4096)
	for range 60 {
		// A datagram may be lost, or refused, while neighbours and sizes are found.
		_, err = client.Write(make([]byte, size))
		_ = client.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if n, readErr := client.Read(answer); readErr == nil && n == size {
			return <-seen, nil
		}
	}
	return "", errors.Join(fmt.Errorf("no answer from %s to %s", to.podIP, from.name), err)
}

// allReach checks every pod with every other one, and that nobody's address was
// changed on the way.
func allReach(t *testing.T, nodes []*machineBox, size int) {
	t.Helper()
	for _, from := range nodes {
		for _, to := range nodes {
			if from == to {
				continue
			}
			if sender, err := reaches(t, from.pod, to, size); err != nil || sender != from.podIP {
				t.Errorf("pod of %s to pod of %s: seen as %q, %v", from.name, to.name, sender, err)
			}
			if _, err := reaches(t, from.box, to, size); err != nil {
				t.Errorf("%s to pod of %s: %v", from.name, to.name, err)
			}
		}
	}
}

// kinds lists how a node reaches the others, in their order.
func (n *machineBox) kinds(nodes []*machineBox) string {
	n.t.Helper()
	var have map[netip.Prefix]path
	n.do(func() (err error) { have, err = n.net.kernel.paths(); return err })
	var out []string
	for _, o := range nodes {
		p, ok := have[netip.MustParsePrefix(o.object.Spec.PodCIDR)]
		switch {
		case o == n && !ok:
			out = append(out, "self")
		case p.via != factsOf(peer.Of(o.object)).ip:
			out = append(out, "nothing")
		case p.tunnel:
			out = append(out, "tunnel")
		default:
			out = append(out, "direct")
		}
	}
	return strings.Join(out, " ")
}

func TestPodsReachEachOther(t *testing.T) {
	for _, c := range []struct {
		what      string
		mode      Mode
		addresses []string
		kinds     []string
		size      int
	}{
		{"three nodes on one link", Auto, []string{"10.0.1.1", "10.0.1.2", "10.0.1.3"}, []string{"self direct direct", "direct self direct", "direct direct self"}, 1400},
		{"two nodes on different links", Auto, []string{"10.0.1.1", "10.0.2.1"}, []string{"self tunnel", "tunnel self"}, 1400},
		{"two on one link, one on another", Auto, []string{"10.0.1.1", "10.0.1.2", "10.0.2.1"}, []string{"self direct tunnel", "direct self tunnel", "tunnel tunnel self"}, 1400},
		{"all in tunnels", VXLAN, []string{"10.0.1.1", "10.0.1.2"}, []string{"self tunnel", "tunnel self"}, 1400},
	} {
		t.Run(c.what, func(t *testing.T) {
			nodes := cluster(t, c.mode, c.addresses...)
			for i, n := range nodes {
				if got := n.kinds(nodes); got != c.kinds[i] {
					t.Errorf("%s reaches the others by %s, want %s", n.name, got, c.kinds[i])
				}
			}
			allReach(t, nodes, c.size)
		})
	}
}

func TestHostGatewayLeavesOutOtherLinks(t *testing.T) {
	nodes := cluster(t, HostGateway, "10.0.1.1", "10.0.1.2", "10.0.2.1")
	if got := nodes[0].kinds(nodes); got != "self direct nothing" {
		t.Errorf("paths are %s", got)
	}
	allReach(t, nodes[:2], 1400)
}

func TestPathsSurviveAndHeal(t *testing.T) {
	nodes := cluster(t, Auto, "10.0.1.1", "10.0.1.2", "10.0.2.1")
	allReach(t, nodes, 1400)

	// A new agent keeps what is right, and takes away what nobody needs any more.
	nodes[0].start(Auto)
	nodes[0].meet(nodes[0], nodes[1])
	if got := nodes[0].kinds(nodes); got != "self direct nothing" {
		t.Errorf("after a restart without the third node the paths are %s", got)
	}
	nodes[0].do(func() error {
		if link, err := findTunnel(); err != nil || link != nil {
			return fmt.Errorf("the tunnel is still there: %v, %w", link, err)
		}
		return nil
	})
	nodes[0].meet(nodes[2])

	// A node is cut off. When it is back, so are its paths.
	cut := nodes[2]
	cut.do(func() error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(eth0)
	})
	cut.do(func() error { _ = cut.net.sync(context.Background(), true); return nil })
	cut.do(func() error { return cut.up("eth0", "") })
	cut.do(func() error { return cut.route("0.0.0.0/0", "10.0.2.254") })
	cut.meet()

	// Entries that somebody broke are made again.
	nodes[0].do(func() error {
		link, err := findTunnel()
		if err != nil || link == nil {
			return fmt.Errorf("there is no tunnel: %w", err)
		}
		return netlink.NeighDel(forwardingEntry(link.Attrs().Index, netip.MustParseAddr("10.244.2.0"), netip.IPv4Unspecified()))
	})
	nodes[0].meet()
	allReach(t, nodes, 1400)

	for _, n := range nodes {
		n.do(func() error { return Leave(context.Background(), n.net.config.ConfDir) })
		if got := n.kinds(nodes); strings.Contains(got, "direct") || strings.Contains(got, "tunnel") {
			t.Errorf("%s left, and its paths are %s", n.name, got)
		}
	}
}

// Without a look at the clock: what the machine tells is enough to notice.
func TestMachineTellsOfItsRoutes(t *testing.T) {
	needs.Root(t, "a network namespace needs root")
	b := newBox(t, "alone")
	b.bridge("link1", "10.0.1.1/24")
	changed := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	// The subscription is made in the namespace of the thread that asks for it.
	b.work <- func() { ended <- machine{}.follow(ctx, func() { changed <- struct{}{} }) }
	other, err := netlink.NewHandleAt(b.ns)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	link, err := other.LinkByName("link1")
	if err != nil {
		t.Fatal(err)
	}
	// Again and again, because nobody says when the subscription is there.
	for deadline := time.Now().Add(time.Minute); ; {
		_, dst, _ := net.ParseCIDR("10.9.0.0/16")
		route := &netlink.Route{Dst: dst, LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK}
		_ = other.RouteReplace(route)
		_ = other.RouteDel(route)
		select {
		case <-changed:
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was told")
		}
	}
}
