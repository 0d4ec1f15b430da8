package ruleset

import "fmt"

// Names of maps, sets and chains.
const (
	serviceAddresses = "service-addresses"
	serviceNodePorts = "service-node-ports"
	deadAddresses    = "dead-addresses"
	deadNodePorts    = "dead-node-ports"
	walled           = "walled-addresses"
	clusterIPs       = "cluster-ips"

	mark    = "to-masquerade"
	foreign = "from-outside"
)

// masqueradeBit marks packets that leave under the node's address.
const masqueradeBit = 0x4000

// Types of keys.
const (
	byAddress = "ipv4_addr . inet_proto . inet_service"
	byPort    = "inet_proto . inet_service"
)

// Maps are the maps of verdicts, with the types of their keys; Sets the sets.
func Maps() map[string]string {
	return map[string]string{
		serviceAddresses: byAddress, serviceNodePorts: byPort,
		deadAddresses: byAddress, deadNodePorts: byPort, walled: byAddress,
	}
}

// Sets are the sets, with the types of their keys.
func Sets() map[string]string { return map[string]string{clusterIPs: "ipv4_addr"} }

// Hook is where a chain is attached.
type Hook struct{ Type, Hook, Priority string }

// Hooks are the chains that packets enter at.
func Hooks() map[string]Hook {
	return map[string]Hook{
		"nat-prerouting":  {"nat", "prerouting", "dstnat"},
		"nat-output":      {"nat", "output", "-100"},
		"nat-postrouting": {"nat", "postrouting", "srcnat"},
		"wall-prerouting": {"filter", "prerouting", "dstnat-10"},
		"wall-output":     {"filter", "output", "-110"},
		"dead-input":      {"filter", "input", "filter"},
		"dead-forward":    {"filter", "forward", "filter"},
		"dead-output":     {"filter", "output", "filter"},
	}
}

// ownAddress is every address of the node that others can reach.
const ownAddress = "fib daddr type local ip daddr != 127.0.0.0/8"

// Base are the rules that are there also without Services: those of the chains at the
// hooks, and of the chains that they and the Services share.
func Base(node Node) map[string][]string {
	wall := []string{"ct state new ip daddr . meta l4proto . th dport vmap @" + walled}
	base := map[string][]string{
		"nat-prerouting": {"jump services"},
		"nat-output":     {"jump services"},
		"services": {
			"ip daddr . meta l4proto . th dport vmap @" + serviceAddresses,
			ownAddress + " meta l4proto . th dport vmap @" + serviceNodePorts,
		},
		mark: {fmt.Sprintf("meta mark set meta mark or %#x", masqueradeBit)},
		"nat-postrouting": {
			fmt.Sprintf("meta mark and %#x == 0 return", masqueradeBit),
			fmt.Sprintf("meta mark set meta mark xor %#x", masqueradeBit),
			"masquerade fully-random",
		},
		foreign:           {},
		"wall-prerouting": wall,
		"wall-output":     wall,
		"dead-input":      {"ct state new jump dead"},
		"dead-forward":    {"ct state new jump dead"},
		"dead-output":     {"ct state new jump dead"},
		"dead": {
			ownAddress + " meta l4proto . th dport vmap @" + deadNodePorts,
			// An address of the node's own is not refused: something may listen there.
			"fib daddr type local return",
			"ip daddr . meta l4proto . th dport vmap @" + deadAddresses,
			// Forwarded traffic has another destination by now; this is another port.
			"ip daddr @" + clusterIPs + " goto refuse",
		},
		// The kernel sends few of the messages that refuse other protocols.
		"refuse": {"meta l4proto tcp reject with tcp reset", "reject"},
	}
	if node.Services.IsValid() {
		// Nobody has this address, so nobody outside should get packets to it.
		base["dead"] = append(base["dead"], fmt.Sprintf("ip daddr %s drop", node.Services))
	}
	if len(node.Pods) > 0 {
		// Who is neither a pod of this node nor the node itself would not take an
		// answer from an endpoint that it did not ask.
		var rules []string
		for _, pods := range node.Pods {
			rules = append(rules, fmt.Sprintf("ip saddr %s return", pods))
		}
		base[foreign] = append(rules, "fib saddr type local return", "goto "+mark)
	}
	return base
}
