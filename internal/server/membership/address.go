package membership

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
)

// ServerName is what a server is called that has not been given a name.
func ServerName(given string) string {
	if given != "" {
		return given
	}
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	short, _, _ := strings.Cut(strings.ToLower(host), ".")
	return short
}

// peerURL is where the others reach the database of a server that is at an address.
func peerURL(given, advertised string) (string, error) {
	address := cmp.Or(given, net.JoinHostPort(advertised, defaultPeers))
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || port == "" || port == "0" || host == "" || ip != nil && ip.IsUnspecified() {
		return "", fmt.Errorf(
			"the address %q for the other servers is not of the form HOST:PORT; give one at which they reach this machine with "+
				"--peer-address",
			address,
		)
	}
	return "https://" + address, nil
}

// canListen reports whether the port for the other servers can be opened here.
func canListen(peer string) error {
	address := strings.TrimPrefix(peer, "https://")
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for the other servers on %s: %w; choose another --peer-address", address, err)
	}
	return listener.Close()
}

// HostOf is the host in a URL, empty if it is none.
func HostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
