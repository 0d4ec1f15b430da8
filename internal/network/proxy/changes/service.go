package changes

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Service is where a Service leads now. Without ports there is nothing to forward:
// it is gone, or headless, or a name only.
type Service struct {
	Name  types.NamespacedName
	Ports []Port
	// HealthCheckPort is where the node says how many endpoints it has; 0 for nowhere.
	HealthCheckPort uint16
}

// Port is one port of a Service.
type Port struct {
	Protocol corev1.Protocol
	Port     uint16
	// ClusterIP is the Service's own address.
	ClusterIP netip.Addr
	// NodePort is the port on every node; 0 for none.
	NodePort uint16
	// ExternalIPs are further addresses; Balancers those that a load balancer outside
	// brings traffic to, from the Sources only, or from everywhere if there are none.
	ExternalIPs, Balancers []netip.Addr
	Sources                []netip.Prefix
	// Affinity is for how many seconds a client stays with its endpoint; 0 for not at all.
	Affinity int32
	// InternalLocal and ExternalLocal keep traffic on the node.
	InternalLocal, ExternalLocal bool
	// Cluster and Local are the endpoints to use, in the whole cluster and on this node, sorted.
	Cluster, Local []netip.AddrPort
	// Serving are all endpoints that answer, in the whole cluster, sorted: also those that are ending while others are
	// ready, and those that hints keep new flows from. Flows that lead there already are good.
	Serving []netip.AddrPort
	// LocalEnds says that none of Local is ready: they are ending, and only the last resort.
	LocalEnds bool
	// Anywhere says that there is an endpoint, though perhaps none that may be used here.
	Anywhere bool
}

// Outside says whether the port is reached from outside the cluster.
func (p *Port) Outside() bool {
	return p.NodePort != 0 || len(p.ExternalIPs) > 0 || len(p.Balancers) > 0
}

// otherProxy is the label of Services that somebody else forwards.
const otherProxy = "service.kubernetes.io/service-proxy-name"

// frontends is what a Service says itself.
type frontends struct {
	ports       []Port
	names       []string // of the ports, by index
	healthCheck uint16
}

// frontendsOf reads a Service; one that needs no forwarding has no ports.
func frontendsOf(svc *corev1.Service) (f frontends) {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Labels[otherProxy] != "" {
		return f
	}
	clusterIP, ok := clusterIPOf(svc)
	if !ok {
		return f
	}
	common := Port{
		ClusterIP:     clusterIP,
		ExternalIPs:   addresses(svc.Spec.ExternalIPs),
		InternalLocal: ptr.Deref(svc.Spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal,
		ExternalLocal: svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			if ptr.Deref(ingress.IPMode, corev1.LoadBalancerIPModeVIP) == corev1.LoadBalancerIPModeVIP {
				common.Balancers = append(common.Balancers, addresses([]string{ingress.IP})...)
			}
		}
		common.Sources = sourceRanges(svc.Spec.LoadBalancerSourceRanges)
	}
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		common.Affinity = corev1.DefaultClientIPServiceAffinitySeconds
		if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil {
			common.Affinity = ptr.Deref(c.ClientIP.TimeoutSeconds, common.Affinity)
		}
	}
	for _, p := range svc.Spec.Ports {
		port := common
		port.Protocol, port.Port, port.NodePort = p.Protocol, uint16(p.Port), uint16(p.NodePort)
		f.ports, f.names = append(f.ports, port), append(f.names, p.Name)
	}
	if common.ExternalLocal {
		f.healthCheck = uint16(svc.Spec.HealthCheckNodePort)
	}
	return f
}

func clusterIPOf(svc *corev1.Service) (netip.Addr, bool) {
	list := addresses(append([]string{svc.Spec.ClusterIP}, svc.Spec.ClusterIPs...))
	if len(list) == 0 {
		return netip.Addr{}, false
	}
	return list[0], true
}

// addresses keeps the IPv4 ones.
func addresses(texts []string) (out []netip.Addr) {
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() && !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out
}

// sourceRanges keeps the IPv4 ones. If all are of the other family nobody may come.
func sourceRanges(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil && p.Addr().Is4() {
			out = append(out, p.Masked())
		}
	}
	if len(out) == 0 && len(texts) > 0 {
		out = append(out, netip.PrefixFrom(netip.IPv4Unspecified(), 32))
	}
	return out
}
