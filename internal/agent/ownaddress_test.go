package agent

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// route is a connection from an address.
type route struct {
	net.Conn
	from string
}

func (r route) LocalAddr() net.Addr { return &net.UDPAddr{IP: net.ParseIP(r.from)} }
func (route) Close() error          { return nil }

func TestNodeIsNamedAfterItsMachine(t *testing.T) {
	for hostname, want := range map[string]string{"Rack1-PC07": "rack1-pc07", "n.Example.COM\n": "n.example.com", "n": "n"} {
		if got := nameOf(hostname); got != want {
			t.Errorf("the node of machine %q is %q", hostname, got)
		}
	}
}

func TestOwnAddressIsThatTowardTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		server string
		routes map[string]string
		want   string
	}{
		"another machine":           {"https://10.0.0.1:6443", map[string]string{"10.0.0.1:6443": "10.0.0.7"}, "10.0.0.7"},
		"a name":                    {"https://cluster.example", map[string]string{"cluster.example:443": "10.0.0.7"}, "10.0.0.7"},
		"this machine":              {"https://127.0.0.1:6443", map[string]string{"127.0.0.1:6443": "127.0.0.1", elsewhere: "10.0.0.8"}, "10.0.0.8"},
		"this machine, and no link": {"https://127.0.0.1:6443", map[string]string{"127.0.0.1:6443": "127.0.0.1"}, ""},
		"link-local only":           {"https://127.0.0.1:6443", map[string]string{"127.0.0.1:6443": "127.0.0.1", elsewhere: "169.254.1.1"}, ""},
		"no way there":              {"https://10.0.0.1:6443", nil, ""},
	} {
		got, err := ownAddress(c.server, func(_, to string) (net.Conn, error) {
			if from := c.routes[to]; from != "" {
				return route{from: from}, nil
			}
			return nil, errors.New("network is unreachable")
		})
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), "--node-ip") {
				t.Errorf("%s: got %s, %v; want words that say what to do", name, got, err)
			}
		} else if err != nil || got.String() != c.want {
			t.Errorf("%s: got %s, %v; want %s", name, got, err, c.want)
		}
	}
}
