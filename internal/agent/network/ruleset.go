package network

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// table is the packet filter table of this package.
const table = "everynode-pods"

// nodesSet is the set in it with the addresses of nodes.
const nodesSet = "nodes"

// rules is what the table depends on.
type rules struct {
	// pods is the network of the node's own pods, cluster that of all.
	pods, cluster netip.Prefix
	// nodes are the addresses of nodes.
	nodes []netip.Addr
	// servers is where the API server answers.
	servers []netip.AddrPort
}

// counts is how much of everything there is in the table.
type counts struct {
	// rules has those of each chain.
	rules map[string]int
	nodes int
}

func (c counts) equal(other counts) bool {
	return c.nodes == other.nodes && maps.Equal(c.rules, other.rules)
}

// counts is what there is in the table that wholeRuleset makes.
func (r rules) counts() counts {
	return counts{
		rules: map[string]int{"postrouting": 1 + strings.Count(serverRules(r), "\n"), "input": 1},
		nodes: len(r.nodes),
	}
}

// wholeRuleset makes the table afresh: what pods send to anything that is not
// of the cluster leaves under the node's address, because nobody else knows the
// way back. So does what they send to the API server, because a node that gives out
// the server's address for its own must not take it away from all pods.
//
// What nodes say of themselves is in a set of single addresses: whatever they are, they
// cannot get into each other's way.
func wholeRuleset(r rules) string {
	var b strings.Builder
	fmt.Fprintf(&b, `table ip %[1]s {}
delete table ip %[1]s
table ip %[1]s {
	set %[7]s {
		type ipv4_addr
	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		%[4]sip saddr %[2]s ip daddr != %[3]s ip daddr != @nodes ip daddr != 224.0.0.0/4 masquerade
	}
	chain input {
		type filter hook input priority filter - 10; policy accept;
		udp dport %[5]d @th,96,24 %#[6]x ip saddr != @nodes drop
	}
}
`, table, r.pods, r.cluster, serverRules(r), tunnelPort, tunnelID, nodesSet)
	b.WriteString(elements("add", r.nodes))
	return b.String()
}

func serverRules(r rules) string {
	var b strings.Builder
	for _, s := range r.servers {
		if s.Addr().Is4() {
			fmt.Fprintf(&b, "ip saddr %s ip daddr %s tcp dport %d masquerade\n\t\t", r.pods, s.Addr(), s.Port())
		}
	}
	return b.String()
}

// noRuleset removes the table, where there is one.
func noRuleset() string {
	return fmt.Sprintf("table ip %[1]s {}\ndelete table ip %[1]s\n", table)
}

// changedRuleset changes which addresses are of nodes.
func changedRuleset(joined, parted []netip.Addr) string {
	return elements("add", joined) + elements("delete", parted)
}

// elements is the command that adds addresses to the set, or deletes them.
func elements(verb string, addresses []netip.Addr) string {
	if len(addresses) == 0 {
		return ""
	}
	names := make([]string, len(addresses))
	for i, ip := range addresses {
		names[i] = ip.String()
	}
	slices.Sort(names)
	return fmt.Sprintf("%s element ip %s %s { %s }\n", verb, table, nodesSet, strings.Join(names, ", "))
}
