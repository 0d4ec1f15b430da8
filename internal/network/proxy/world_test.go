package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/everynode/everynode/internal/testenv/needs"
)

// place is a network namespace.
type place struct {
	name string
	ns   netns.NsHandle
}

// do runs f in the namespace.
func (p *place) do(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(p.ns); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

func newPlace(t *testing.T, name string) *place {
	t.Helper()
	p := &place{name: name}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // as above
		var err error
		p.ns, err = netns.New()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { _ = p.ns.Close() })
	must(t, p.do(func() error { return up("lo") }))
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func up(name string, addresses ...string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, addr); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

func via(to, gateway string) error {
	_, dst, err := net.ParseCIDR(to)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(gateway)})
}

// connect links two places; the link's ends get names and addresses.
func connect(t *testing.T, a *place, aName, aAddress string, b *place, bName, bAddress string) {
	t.Helper()
	must(t, a.do(func() error {
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: aName}, PeerName: bName, PeerNamespace: netlink.NsFd(int(b.ns))}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		if aAddress == "" {
			return up(aName)
		}
		return up(aName, aAddress)
	}))
	must(t, b.do(func() error { return up(bName, bAddress) }))
}

// world is a node with two pods, another node's pod, and a machine outside.
//
//	outside 10.0.0.9 ── eth0 10.0.0.1 node cni0 10.244.1.1 ── a 10.244.1.2, b 10.244.1.3
//	                            eth1 10.0.1.1 ── 10.0.1.2 other: pod c 10.244.2.2
type world struct{ node, a, b, c, outside *place }

func newWorld(t *testing.T) *world {
	t.Helper()
	needs.Root(t, "network namespaces need root")
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("nft is not installed")
	}
	w := &world{node: newPlace(t, "node"), a: newPlace(t, "a"), b: newPlace(t, "b"), c: newPlace(t, "c"), outside: newPlace(t, "outside")}
	must(t, w.node.do(func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cni0"}}); err != nil {
			return err
		}
		return up("cni0", "10.244.1.1/24")
	}))
	connect(t, w.node, "eth0", "10.0.0.1/24", w.outside, "eth0", "10.0.0.9/24")
	connect(t, w.node, "eth1", "10.0.1.1/24", w.c, "eth0", "10.0.1.2/24")
	for pod, address := range map[*place]string{w.a: "10.244.1.2/24", w.b: "10.244.1.3/24"} {
		connect(t, w.node, "veth"+pod.name, "", pod, "eth0", address)
		must(t, w.node.do(func() error {
			bridge, err := netlink.LinkByName("cni0")
			if err != nil {
				return err
			}
			port, err := netlink.LinkByName("veth" + pod.name)
			if err != nil {
				return err
			}
			// As the CNI plugin does it: a pod that is led to itself comes back by its port.
			return errors.Join(netlink.LinkSetMaster(port, bridge), netlink.LinkSetHairpin(port, true))
		}))
		must(t, pod.do(func() error { return via("0.0.0.0/0", "10.244.1.1") }))
	}
	must(t, w.c.do(func() error { return errors.Join(up("lo", "10.244.2.2/32"), via("0.0.0.0/0", "10.0.1.1")) }))
	must(t, w.outside.do(func() error { return via("0.0.0.0/0", "10.0.0.1") }))
	must(t, w.node.do(func() error { return errors.Join(via("10.244.2.0/24", "10.0.1.2"), via("0.0.0.0/0", "10.0.1.2")) }))
	for _, pod := range []*place{w.a, w.b, w.c} {
		pod.serve(t, addresses[pod.name]+":8080")
	}
	return w
}

// serve answers on a TCP and UDP address with the place's name and who asked.
func (p *place) serve(t *testing.T, at string) {
	t.Helper()
	var l net.Listener
	var u net.PacketConn
	must(t, p.do(func() (err error) {
		if l, err = net.Listen("tcp4", at); err != nil {
			return err
		}
		u, err = net.ListenPacket("udp4", at)
		return err
	}))
	t.Cleanup(func() { _, _ = l.Close(), u.Close() })
	answer := func(who net.Addr) []byte {
		host, _, _ := net.SplitHostPort(who.String())
		return []byte(p.name + " " + host + "\n")
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write(answer(conn.RemoteAddr()))
			_ = conn.Close()
		}
	}()
	go func() {
		buffer := make([]byte, 64)
		for {
			n, who, err := u.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(append(buffer[:n:n], answer(who)...), who)
		}
	}()
}

// patience is for answers that come; a drop is told from them by a shorter one.
const (
	patience   = 30 * time.Second
	impatience = 500 * time.Millisecond
)

// ask returns who answered and whom they saw; "refused", or "nothing" if no answer came.
func (p *place) ask(network, address string, wait time.Duration) (answer string) {
	err := p.do(func() error {
		conn, err := net.DialTimeout(network, address, wait)
		if err != nil {
			return err
		}
		defer conn.Close()
		answer, err = talk(conn, "who? ", wait)
		return err
	})
	var timeout net.Error
	switch {
	case err == nil:
		return answer
	case strings.Contains(err.Error(), "refused"), strings.Contains(err.Error(), "not permitted"):
		return "refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "nothing"
	}
	return fmt.Sprint(err)
}

// talk reads the answer; over UDP to a question, which the answer repeats, so that one
// that comes late is not taken for another's.
func talk(conn net.Conn, question string, wait time.Duration) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	udp := conn.RemoteAddr().Network() == "udp"
	if udp {
		if _, err := conn.Write([]byte(question)); err != nil {
			return "", err
		}
	}
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadString('\n')
		if err != nil || !udp {
			return strings.TrimSpace(line), err
		}
		if answer, ours := strings.CutPrefix(line, question); ours {
			return strings.TrimSpace(answer), nil
		}
	}
}

// bridgeFilter says whether bridged packets pass the packet filter.
func bridgeFilter(value string) error {
	err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte(value), 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // they never do
	}
	return err
}

func nft(commands string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

// rules lists the rules on the node, without what changes by itself.
func (r *running) rules() string {
	r.t.Helper()
	var out []byte
	must(r.t, r.node.do(func() (err error) {
		out, err = exec.Command("nft", "list", "ruleset").CombinedOutput()
		return err
	}))
	return string(out)
}
