// Package plan decides which Service has which cluster address and node port, where
// what is written of that and the Services do not agree.
package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// How the names begin that are held for addresses, and for node ports.
const (
	Addresses = "serviceips/"
	NodePorts = "servicenodeports/"
)

// Node ports are given out from this range, as in Kubernetes.
const (
	FirstNodePort = 30000
	LastNodePort  = 32767
)

// Holder is how it is written that a Service holds something.
func Holder(s *corev1.Service) string {
	return s.Namespace + "/" + s.Name + "/" + string(s.UID)
}

// AddressName is the name that is held for an address.
func AddressName(ip netip.Addr) string { return Addresses + ip.Unmap().String() }

// NodePortName is the name that is held for a node port.
func NodePortName(port int32) string { return NodePorts + strconv.Itoa(int(port)) }

// Parse is the address or the node port of a name.
func Parse(name string) (netip.Addr, int32) {
	if text, ok := strings.CutPrefix(name, Addresses); ok {
		ip, _ := netip.ParseAddr(text)
		return ip, 0
	}
	port, _ := strconv.ParseInt(strings.TrimPrefix(name, NodePorts), 10, 32)
	return netip.Addr{}, int32(port)
}

// Names are what a Service holds, each once: addresses, node ports, and the port at
// which nodes tell of its health.
func Names(s *corev1.Service) []string {
	var out []string
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, text := range s.Spec.ClusterIPs {
		if ip, err := netip.ParseAddr(text); err == nil {
			add(AddressName(ip))
		}
	}
	for _, p := range s.Spec.Ports {
		if p.NodePort != 0 {
			add(NodePortName(p.NodePort))
		}
	}
	if s.Spec.HealthCheckNodePort != 0 {
		add(NodePortName(s.Spec.HealthCheckNodePort))
	}
	return out
}

// Finding is something wrong with a Service, in an event's words.
type Finding struct {
	Service         *corev1.Service
	Reason, Message string
}

// Assign says which Service each name belongs to, given who is written to hold what,
// and what is wrong. Of several Services with one name, that keeps it which is
// written to hold it, else the oldest. If nothing is written at all, the data is of
// a version that wrote nothing, and it is not a fault that a Service is missing.
//
// inNetwork says whether an address is of a network for Services. What IPAddresses hold by themselves is theirs, unless
// a Service has it.
func Assign(services []*corev1.Service, holders map[string]string,
	inNetwork func(netip.Addr) bool) (owners map[string]*corev1.Service, findings []Finding) {
	services = slices.SortedFunc(slices.Values(services), func(a, b *corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(Holder(a), Holder(b)))
	})
	owners = map[string]*corev1.Service{}
	for _, s := range services {
		for _, name := range Names(s) {
			if owners[name] == nil || holders[name] == Holder(s) {
				owners[name] = s
			}
		}
	}
	for _, s := range services {
		for _, name := range Names(s) {
			if f := judge(s, name, owners[name], holders, inNetwork); f.Reason != "" {
				findings = append(findings, f)
			}
		}
		for i, text := range s.Spec.ClusterIPs {
			if _, err := netip.ParseAddr(text); err != nil && text != corev1.ClusterIPNone && text != "" {
				findings = append(findings, Finding{
					s,
					"ClusterIPNotValid",
					fmt.Sprintf("Cluster IP [%d]: %s is not a valid IP; please recreate Service", i, text),
				})
			}
		}
	}
	return owners, findings
}

func judge(
	s *corev1.Service, name string, owner *corev1.Service, holders map[string]string, inNetwork func(netip.Addr) bool,
) Finding {
	ip, port := Parse(name)
	missing := len(holders) > 0 && holders[name] != Holder(s)
	if !ip.IsValid() {
		switch {
		case owner != s:
			return Finding{
				s,
				"PortAlreadyAllocated",
				fmt.Sprintf("Port %d was assigned to multiple services; please recreate service", port),
			}
		case port < FirstNodePort || port > LastNodePort:
			return Finding{
				s,
				"PortOutOfRange",
				fmt.Sprintf(
					"Port %d is not within the port range %d-%d; please recreate service", port, FirstNodePort, LastNodePort,
				),
			}
		case missing:
			return Finding{s, "PortNotAllocated", fmt.Sprintf("Port %d is not allocated; repairing", port)}
		}
		return Finding{}
	}
	family := Family(ip)
	switch {
	case owner != s:
		return Finding{
			s,
			"ClusterIPAlreadyAllocated",
			fmt.Sprintf("Cluster IP [%s]:%s was assigned to multiple services; please recreate service", family, ip),
		}
	case !inNetwork(ip):
		return Finding{
			s,
			"ClusterIPOutOfRange",
			fmt.Sprintf("Cluster IP [%s]:%s is not within any configured Service CIDR; please recreate service", family, ip),
		}
	case missing:
		return Finding{s, "ClusterIPNotAllocated", fmt.Sprintf("Cluster IP [%s]: %s is not allocated; repairing", family, ip)}
	}
	return Finding{}
}

// Abandoned are the names that are written to be a Service's which has them no more, given who they belong to.
func Abandoned(owners map[string]*corev1.Service, holders map[string]string) (out []string) {
	for name, holder := range holders {
		if owners[name] == nil && !strings.HasPrefix(holder, addressHolder) {
			out = append(out, name)
		}
	}
	return out
}
