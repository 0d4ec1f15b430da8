package podaccess

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/everynode/everynode/internal/apiserver/nodecall"
)

// podSuffix ends the host names that stand for an address on a node. Nothing resolves it.
const podSuffix = ".pod-of-node.invalid"

// ErrAddressNotAllowed refuses loopback, link-local and other addresses that are not of
// one machine for all others.
var ErrAddressNotAllowed = errors.New("address not allowed")

// PodHost is the HOST:PORT that stands for a port of a pod on the node. It names the
// node too: connections are kept by host, and an address can become another pod's.
func PodHost(nodeName string, address netip.AddrPort) string {
	ip := strings.NewReplacer(".", "-", ":", "_").Replace(address.Addr().String())
	return net.JoinHostPort(ip+"."+nodeName+podSuffix, strconv.Itoa(int(address.Port())))
}

// parsePodHost is the reverse of PodHost; false for all other hosts.
func parsePodHost(hostPort string) (nodeName string, address netip.AddrPort, ok bool) {
	host, portText, err := net.SplitHostPort(hostPort)
	if err != nil {
		return "", address, false
	}
	name, found := strings.CutSuffix(host, podSuffix)
	ipText, nodeName, dotted := strings.Cut(name, ".")
	ip, ipErr := netip.ParseAddr(strings.NewReplacer("-", ".", "_", ":").Replace(ipText))
	port, portErr := strconv.ParseUint(portText, 10, 16)
	if !found || !dotted || ipErr != nil || portErr != nil {
		return "", address, false
	}
	return nodeName, netip.AddrPortFrom(ip, uint16(port)), true
}

// Proxyable refuses addresses that lead to the server's own machine or link.
func Proxyable(address string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(address)
	if err != nil || !nodecall.LeadsOut(ip) {
		return netip.Addr{}, ErrAddressNotAllowed
	}
	return ip.Unmap(), nil
}
