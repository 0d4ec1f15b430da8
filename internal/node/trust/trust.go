// Package trust is what the API server tells agents about the cluster's
// authorities and servers, so that they follow when one is replaced.
package trust

import "net/netip"

// Path is where the API server tells it, over a connection that the agent trusts.
const Path = "/everynode/v1/trust"

// Bundle holds certificates in PEM, one after the other, those that sign now first.
type Bundle struct {
	// Authorities sign the API server's certificate and the client certificates of nodes.
	Authorities string `json:"authorities"`
	// NodeAuthorities sign the serving certificates of nodes.
	NodeAuthorities string `json:"nodeAuthorities"`
	// Servers are where the API servers are that live; none if this one does not know.
	Servers []netip.AddrPort `json:"servers,omitempty"`
	// Restored names the last restore of the control plane from a backup; empty if there was
	// none. A node that hears of another one may not be known any more.
	Restored string `json:"restored,omitempty"`
}
