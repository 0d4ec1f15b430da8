package network

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/everynode/everynode/internal/node"
)

// bounds is what the claims of nodes are judged by. It comes from the control plane
// and from this machine, never from another node.
type bounds struct {
	node.PodNetworks
	// kept are addresses that no pod network may hold: the API server's.
	kept []netip.Addr
}

func (b bounds) known() bool { return b.Cluster.IsValid() }

func (b bounds) equal(o bounds) bool {
	return b.PodNetworks == o.PodNetworks && slices.Equal(b.kept, o.kept)
}

// checkPods says what is wrong with a node's pod network. All that pass have the same
// size, so that two of them are the same or apart.
func (b bounds) checkPods(text string) (netip.Prefix, error) {
	part, err := b.Part(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	if !part.Addr().Is4() {
		return netip.Prefix{}, fmt.Errorf("the pod network %s is not of IPv4", part)
	}
	for _, ip := range b.kept {
		if part.Contains(ip) {
			return netip.Prefix{}, fmt.Errorf("the pod network %s holds the API server's address %s", part, ip)
		}
	}
	return part, nil
}

// checkIP says what is wrong with a node's address: pods have no route to where it
// would be, or send to it what is meant for others.
func (b bounds) checkIP(ip netip.Addr) error {
	switch {
	case !ip.Is4() || !ip.IsGlobalUnicast():
		return fmt.Errorf("the address %s is not one at which a machine can be reached", ip)
	case b.Cluster.Contains(ip):
		return fmt.Errorf("the address %s is in the network of the cluster's pods %s", ip, b.Cluster)
	}
	return nil
}
