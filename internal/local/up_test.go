package local

import (
	"net/netip"
	"testing"

	"github.com/everynode/everynode/internal/local/layout"
)

func TestGoneNodes(t *testing.T) {
	subnet := netip.MustParsePrefix("10.9.8.0/24")
	three := layout.New(layout.Options{DataDir: "/d", Nodes: 3}, layout.RuntimeContainerd, subnet)
	two := layout.New(layout.Options{DataDir: "/d", Nodes: 2}, layout.RuntimeContainerd, subnet)
	if gone := goneNodes(three, two); len(gone) != 1 || gone[0] != "node-3" {
		t.Errorf("from three to two nodes %v are gone", gone)
	}
	if gone := goneNodes(two, three); len(gone) != 0 {
		t.Errorf("from two to three nodes %v are gone", gone)
	}
}

func TestParseListener(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0
   1: 0100007F:1F90 0100007F:192B 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0
`
	if got := parseListener(table, 6443); got != "4711" {
		t.Errorf("the listener of 6443 is %q", got)
	}
	if got := parseListener(table, 8080); got != "" {
		t.Errorf("a connected socket counts as listener: %q", got)
	}
}
