package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// table is the packet filter table of this package.
const table = "everynode-pods"

// wholeRuleset makes the table afresh: what pods send to anything that is not
// of the cluster leaves under the node's address, because nobody else knows the
// way back.
func wholeRuleset(pods netip.Prefix, cluster []netip.Prefix) string {
	var b strings.Builder
	fmt.Fprintf(&b, `table ip %[1]s {}
delete table ip %[1]s
table ip %[1]s {
	set cluster {
		type ipv4_addr
		flags interval
	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %[2]s ip daddr != @cluster ip daddr != 224.0.0.0/4 masquerade
	}
}
`, table, pods)
	b.WriteString(elements("add", cluster))
	return b.String()
}

// noRuleset removes the table, where there is one.
func noRuleset() string {
	return fmt.Sprintf("table ip %[1]s {}\ndelete table ip %[1]s\n", table)
}

// changedRuleset changes which networks are of the cluster.
func changedRuleset(joined, parted []netip.Prefix) string {
	return elements("add", joined) + elements("delete", parted)
}

// elements is the command that adds networks to the set, or deletes them.
func elements(verb string, networks []netip.Prefix) string {
	if len(networks) == 0 {
		return ""
	}
	names := make([]string, len(networks))
	for i, n := range networks {
		names[i] = n.String()
		if n.IsSingleIP() {
			names[i] = n.Addr().String()
		}
	}
	slices.Sort(names)
	return fmt.Sprintf("%s element ip %s cluster { %s }\n", verb, table, strings.Join(names, ", "))
}
