package ownaddress

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// way is a connection from an address.
type way struct {
	net.Conn
	from string
}

func (w way) LocalAddr() net.Addr { return &net.UDPAddr{IP: net.ParseIP(w.from)} }
func (way) Close() error          { return nil }

// world is a machine's network: from which address it speaks to whom, and which it has.
type world struct {
	ways map[string]string
	has  []string
}

func (w *world) dial(_ context.Context, _, to string) (net.Conn, error) {
	if from := w.ways[to]; from != "" {
		return way{from: from}, nil
	}
	return nil, errors.New("network is unreachable")
}

func (w *world) held() (all []net.Addr, err error) {
	for _, ip := range w.has {
		all = append(all, &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(24, 32)})
	}
	return all, nil
}

const to = "10.0.0.1:6443"

func TestAddressIsThatTowardTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		server, last string
		world        world
		want         string
		fails        string
	}{
		"another machine":            {server: to, world: world{ways: map[string]string{to: "10.0.0.7"}}, want: "10.0.0.7"},
		"a name":                     {server: "cluster.example", world: world{ways: map[string]string{"cluster.example:443": "10.0.0.7"}}, want: "10.0.0.7"},
		"this machine":               {server: "127.0.0.1:6443", world: world{ways: map[string]string{"127.0.0.1:6443": "127.0.0.1", elsewhere: "10.0.0.8"}}, want: "10.0.0.8"},
		"this machine, and no link":  {server: "127.0.0.1:6443", world: world{ways: map[string]string{"127.0.0.1:6443": "127.0.0.1"}}, fails: "--node-ip"},
		"link-local only":            {server: "127.0.0.1:6443", world: world{ways: map[string]string{"127.0.0.1:6443": "127.0.0.1", elsewhere: "169.254.1.1"}}, fails: "--node-ip"},
		"no way there":               {server: to, fails: "--node-ip"},
		"no network, and a last one": {server: to, last: "10.0.0.7", want: "10.0.0.7", fails: "unreachable"},
		"another lease":              {server: to, last: "10.0.0.7", world: world{ways: map[string]string{to: "10.0.0.9"}, has: []string{"10.0.0.9"}}, want: "10.0.0.9"},
		"another lease, and no DNS": {server: to, last: "10.0.0.7", world: world{ways: map[string]string{elsewhere: "10.0.0.9"}, has: []string{"10.0.0.9"}},
			want: "10.0.0.9"},
		"no DNS, on a machine with two links": {server: to, last: "10.0.0.7", world: world{ways: map[string]string{elsewhere: "10.1.0.9"}, has: []string{"10.1.0.9", "10.0.0.7"}},
			want: "10.0.0.7"},
		"no way to the server, and the same address": {server: to, last: "10.0.0.7", world: world{has: []string{"10.0.0.7"}}, want: "10.0.0.7"},
	} {
		file := filepath.Join(t.TempDir(), "address")
		if c.last != "" {
			if err := os.WriteFile(file, []byte(c.last), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a, err := New(t.Context(), Config{Server: "https://" + c.server, File: file, Dial: c.world.dial, Held: c.world.held})
		if err != nil {
			t.Fatal(err)
		}
		err = a.Look(t.Context())
		if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %v, want %q", name, err, c.fails)
		}
		if got := strings.Join(a.Texts(), " "); got != c.want {
			t.Errorf("%s: the address is %q, want %q", name, got, c.want)
		}
	}
}

func TestChangesAreToldAndKept(t *testing.T) {
	w := &world{ways: map[string]string{to: "10.0.0.7"}}
	cfg := Config{Server: "https://" + to, File: filepath.Join(t.TempDir(), "address"), Dial: w.dial, Held: w.held}
	a, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	a.OnChange(func() { told++ })
	for i, step := range []struct {
		from, want string
		told       int
	}{{"10.0.0.7", "10.0.0.7", 1}, {"10.0.0.7", "10.0.0.7", 1}, {"10.0.0.9", "10.0.0.9", 2}, {"", "10.0.0.9", 2}} {
		w.ways[to] = step.from
		if err := a.Look(t.Context()); (err == nil) != (step.from != "") {
			t.Errorf("look %d: %v", i, err)
		}
		again, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got, next := strings.Join(a.Texts(), " "), strings.Join(again.Texts(), " "); got != step.want || next != step.want || told != step.told {
			t.Errorf("look %d: it is %q, and %q at the next start, told %d times; want %+v", i, got, next, told, step)
		}
	}
}

func TestConfiguredAddressStays(t *testing.T) {
	w := &world{ways: map[string]string{to: "10.0.0.7"}}
	a, err := New(t.Context(), Config{Fixed: []net.IP{net.IPv4(192, 0, 2, 1)}, Server: "https://" + to, Dial: w.dial, Held: w.held})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Look(t.Context()); err != nil || strings.Join(a.Texts(), " ") != "192.0.2.1" {
		t.Errorf("it is %v, %v", a.Texts(), err)
	}
}

// A file that holds no address does not keep a node from starting.
func TestBrokenFile(t *testing.T) {
	w := &world{}
	file := filepath.Join(t.TempDir(), "address")
	if err := os.WriteFile(file, []byte("10.0"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := New(t.Context(), Config{Server: "https://" + to, File: file, Dial: w.dial, Held: w.held})
	if err != nil || len(a.List()) != 0 {
		t.Errorf("it is %v, %v", a, err)
	}
}
