package network

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// frame is what a node's end of a tunnel takes from another: a datagram with the text
// inside, from one pod to another, in an Ethernet frame in a VXLAN packet.
func frame(from, to netip.Addr, port uint16, end netip.Addr, text string) []byte {
	out := []byte{0x08, 0, 0, 0, byte(tunnelID >> 16), byte(tunnelID >> 8 & 0xff), byte(tunnelID & 0xff), 0}
	out = append(out, hardwareAddress(end)...)
	out = append(out, hardwareAddress(from)...)
	out = append(out, 0x08, 0x00)
	ip := []byte{0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+8+len(text)))
	ip = append(append(ip, from.AsSlice()...), to.AsSlice()...)
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum>>16+sum&0xffff))
	udp := make([]byte, 8)
	binary.BigEndian.PutUint16(udp, 9)
	binary.BigEndian.PutUint16(udp[2:], port)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(text)))
	return append(append(append(out, ip...), udp...), text...)
}

// A machine that is no node cannot put packets into the pods' network, whatever sender
// it writes into them.
func TestTunnelTakesNothingFromStrangers(t *testing.T) {
	nodes := cluster(t, VXLAN, "10.0.1.1", "10.0.2.1")
	allReach(t, nodes, 1000)
	stranger := newBox(t, "stranger")
	nodes[1].bridge("behind", "10.7.0.254/24")
	nodes[1].plug("behind", stranger, "10.7.0.1/24", "10.7.0.254")
	nodes[0].do(func() error { return nodes[0].route("10.7.0.0/24", "10.0.1.254") })

	var server net.PacketConn
	nodes[0].pod.do(func() (err error) { server, err = net.ListenPacket("udp4", nodes[0].podIP+":0"); return err })
	defer server.Close()
	heard := func() string {
		buffer := make([]byte, 64)
		_ = server.SetReadDeadline(time.Now().Add(2 * time.Second))
		n, _, err := server.ReadFrom(buffer)
		if err != nil {
			return ""
		}
		return string(buffer[:n])
	}
	send := func(from *box, local, text string) {
		packet := frame(netip.MustParseAddr("10.244.1.2"), netip.MustParseAddr(nodes[0].podIP), uint16(server.LocalAddr().(*net.UDPAddr).Port), netip.MustParseAddr("10.244.0.0"), text)
		from.do(func() error {
			c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(local)}, &net.UDPAddr{IP: net.ParseIP("10.0.1.1"), Port: tunnelPort})
			if err != nil {
				return err
			}
			defer c.Close()
			for range 3 {
				if _, err := c.Write(packet); err != nil {
					return err
				}
			}
			return nil
		})
	}
	send(nodes[1].box, "10.0.2.1", "from a node")
	if got := heard(); got != "from a node" {
		t.Fatalf("the pod heard %q, want what another node sent through its tunnel", got)
	}
	for heard() != "" {
	}
	// The pod of another node reaches the node under its own address, and is no node.
	send(nodes[1].pod, nodes[1].podIP, "from a pod")
	send(stranger, "10.7.0.1", "from a stranger")
	if got := heard(); got != "" {
		t.Errorf("the pod heard %q through the tunnel", got)
	}
}

// Cilium routes the node's own pods by way of an address of the machine, on a link of its own; other nodes' pods have
// another machine's address in their routes.
func TestWhoIsHereWithCilium(t *testing.T) {
	t.Run("the address before the route", func(t *testing.T) { hereWithCilium(t, true) })
	t.Run("the route before the address", func(t *testing.T) { hereWithCilium(t, false) })
}

func hereWithCilium(t *testing.T, addressFirst bool) {
	nodes := cluster(t, Auto, "10.0.1.1", "10.0.1.2")
	nodes[0].do(func() error {
		link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "cilium_host", Flags: net.FlagUp}}
		err := netlink.LinkAdd(link)
		if err != nil {
			return err
		}
		gateway := &net.IPNet{IP: net.ParseIP("10.9.0.43"), Mask: net.CIDRMask(32, 32)}
		assign := func() error { return netlink.AddrAdd(link, &netlink.Addr{IPNet: gateway}) }
		if addressFirst {
			err = assign()
			if err != nil {
				return err
			}
		}
		pods := func(third byte) *net.IPNet {
			return &net.IPNet{IP: net.IPv4(10, 9, third, 0), Mask: net.CIDRMask(24, 32)}
		}
		for _, route := range []netlink.Route{
			{LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: gateway},
			{LinkIndex: link.Attrs().Index, Dst: pods(0), Gw: gateway.IP},
			{Dst: pods(1), Gw: net.ParseIP("10.0.1.2")},
		} {
			err = netlink.RouteAdd(&route)
			if err != nil {
				return err
			}
		}
		if !addressFirst {
			err = assign()
			if err != nil {
				return err
			}
		}
		own := []net.IP{net.ParseIP("10.0.1.1")}
		for text, here := range map[string]bool{"10.9.0.7": true, "10.9.0.43": true, "10.9.1.7": false} {
			if got := IsHere(netip.MustParseAddr(text), own, true); got != here {
				t.Errorf("%s is here: %v", text, got)
			}
		}
		if IsHere(netip.MustParseAddr("10.9.0.7"), own, false) {
			t.Error("with the node's own network a pod of another link is here")
		}
		return nil
	})
}

func TestWhoIsHere(t *testing.T) {
	nodes := cluster(t, Auto, "10.0.1.1", "10.0.1.2", "10.0.2.1")
	own := []net.IP{net.ParseIP("10.0.1.1")}
	for text, here := range map[string]bool{
		"10.0.1.1": true, "127.0.0.1": true, "10.244.0.1": true, "10.244.0.2": true,
		"10.0.1.2": false, "10.0.1.254": false, "10.0.1.77": false, "10.0.2.1": false, "10.244.1.2": false, "10.244.2.2": false, "192.0.2.1": false,
	} {
		nodes[0].do(func() error {
			for _, foreign := range []bool{false, true} {
				// Of a foreign network's tunnels nobody knows here.
				if foreign && text == "10.244.2.2" {
					continue
				}
				if got := IsHere(netip.MustParseAddr(text), own, foreign); got != here {
					t.Errorf("%s is here: %v (foreign network: %v)", text, got, foreign)
				}
			}
			return nil
		})
	}
}
