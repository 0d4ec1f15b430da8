package certificates

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// Control is what belongs to the control plane, and so to no node.
type Control struct {
	// Names and IPs are those of the API server's certificate.
	Names []string
	IPs   []net.IP
	// Networks are those of Services and pods.
	Networks []netip.Prefix
}

// notTheNodes says which name or address of a request can never be its node's,
// whatever the node reports; empty if there is none.
func notTheNodes(r *request, facts Facts) string {
	for _, san := range r.sans {
		why := facts.Control.claims(san, r.nodeName())
		if holder := facts.Holders[san]; why == "" && holder != "" {
			why = fmt.Sprintf("is or is reported by node %s too", holder)
		}
		if why != "" {
			return san + " " + why
		}
	}
	return ""
}

// claims says why a name or address is not any node's.
func (c Control) claims(san, node string) string {
	if ip := net.ParseIP(san); ip != nil {
		return c.claimsIP(ip)
	}
	if san == "localhost" || strings.HasSuffix(san, ".localhost") {
		return "means another machine to everybody"
	}
	if first, _, _ := strings.Cut(san, "."); first == "kubernetes" {
		return "is a name of the API server"
	}
	if padded := "." + san + "."; strings.Contains(padded, ".svc.") || strings.HasSuffix(padded, ".cluster.local.") {
		return "is in the domain of Services and pods"
	}
	// A node can be on the machine of the control plane, and is then named like it.
	if san != node && slices.ContainsFunc(c.Names, func(name string) bool { return strings.EqualFold(name, san) }) {
		return "is a name of the API server"
	}
	return ""
}

func (c Control) claimsIP(ip net.IP) string {
	switch {
	case ip.IsLoopback():
		return "means another machine to everybody"
	case ip.IsUnspecified(), ip.IsMulticast(), ip.Equal(net.IPv4bcast):
		return "is no machine's address"
	case slices.ContainsFunc(c.IPs, ip.Equal):
		return "is an address of the API server"
	}
	address, _ := netip.AddrFromSlice(ip)
	for _, network := range c.Networks {
		if network.Contains(address.Unmap()) {
			return fmt.Sprintf("is in the network %s of Services or pods", network)
		}
	}
	return ""
}

// isServing reports whether a request is for a node's serving certificate.
func isServing(spec certificatesv1.CertificateSigningRequestSpec) bool {
	return spec.SignerName == certificatesv1.KubeletServingSignerName
}
