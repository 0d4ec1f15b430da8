// Package tunnel says how the API server asks a node's agent for a connection to one of
// the node's pods: a request for such a path, upgraded to the protocol, becomes it.
package tunnel

import (
	"net/netip"
	"strconv"
)

// The path, as a pattern, and the protocol.
const (
	Path     = "/tunnel/{address}/{port}"
	Protocol = "everynode-tunnel"
)

// To is the path of a connection to an address.
func To(address netip.AddrPort) string {
	return "/tunnel/" + address.Addr().String() + "/" + strconv.Itoa(int(address.Port()))
}
