package agent

import (
	"fmt"
	"net"
	"net/url"
)

// elsewhere is an address on no network of anybody: the way there is the machine's default route.
const elsewhere = "192.0.2.1:9"

// ownAddress is the address with which this machine speaks to the API server or, if that is on the same machine, to the rest of the
// world. Dial is net.Dial; by UDP nothing is sent.
func ownAddress(server string, dial func(network, address string) (net.Conn, error)) (net.IP, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("read the server's URL: %w", err)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	for _, to := range []string{net.JoinHostPort(u.Hostname(), port), elsewhere} {
		connection, err := dial("udp4", to)
		if err != nil {
			return nil, fmt.Errorf("find this machine's address: %w; give it with --node-ip", err)
		}
		local, ok := connection.LocalAddr().(*net.UDPAddr)
		_ = connection.Close() // Nothing was sent.
		if ok && local.IP.IsGlobalUnicast() {
			return local.IP, nil
		}
	}
	return nil, fmt.Errorf("this machine has no address but its own loopback; give one with --node-ip")
}
