package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Labels and annotations of Endpoints.
const (
	managedBy      = "endpoints.kubernetes.io/managed-by"
	managerOfOurs  = "endpoint-controller"
	overCapacity   = corev1.EndpointsOverCapacity
	truncated      = "truncated"
	maxInEndpoints = 1000
)

// Ours says whether we wrote Endpoints, and not a person.
func Ours(e *corev1.Endpoints) bool { return e.Labels[managedBy] == managerOfOurs }

// Endpoints is what the Endpoints of a Service with a selector should be. current is
// the object there is, nil if none; changed says whether it has to be written. The
// result shares nothing with current that a writer would change.
func Endpoints(svc *corev1.Service, pods []*corev1.Pod,
	current *corev1.Endpoints) (wanted *corev1.Endpoints, changed bool) {
	subsets, cut := fit(Subsets(svc, pods), maxInEndpoints)
	wanted = &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name}}
	if current != nil {
		*wanted = *current
	}
	wanted.Subsets = subsets
	wanted.Labels = maps.Clone(svc.Labels)
	if wanted.Labels == nil {
		wanted.Labels = map[string]string{}
	}
	wanted.Labels[managedBy] = managerOfOurs
	if svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.ClusterIP == "" {
		wanted.Labels[corev1.IsHeadlessService] = ""
	} else {
		delete(wanted.Labels, corev1.IsHeadlessService)
	}
	wanted.Annotations = maps.Clone(wanted.Annotations)
	delete(wanted.Annotations, overCapacity)
	if cut {
		if wanted.Annotations == nil {
			wanted.Annotations = map[string]string{}
		}
		wanted.Annotations[overCapacity] = truncated
	}
	changed = current == nil || !apiequality.Semantic.DeepEqual(current.Subsets, wanted.Subsets) ||
		!apiequality.Semantic.DeepEqual(current.Labels, wanted.Labels) ||
		!apiequality.Semantic.DeepEqual(current.Annotations, wanted.Annotations)
	return wanted, changed
}

// Subsets groups the addresses of a Service's pods by the ports that they have.
func Subsets(svc *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	groups := map[string]*corev1.EndpointSubset{}
	for _, p := range pods {
		address, ok := addressOf(svc, p)
		if !ok {
			continue
		}
		ports, key := portsOf(svc, p)
		if len(ports) == 0 && len(svc.Spec.Ports) > 0 {
			continue
		}
		g := groups[key]
		if g == nil {
			g = &corev1.EndpointSubset{Ports: ports}
			groups[key] = g
		}
		if svc.Spec.PublishNotReadyAddresses || ready(p) {
			g.Addresses = append(g.Addresses, address)
		} else {
			g.NotReadyAddresses = append(g.NotReadyAddresses, address)
		}
	}
	var out []corev1.EndpointSubset
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		g := groups[key]
		slices.SortFunc(g.Addresses, byAddress)
		slices.SortFunc(g.NotReadyAddresses, byAddress)
		out = append(out, *g)
	}
	return out
}

func byAddress(a, b corev1.EndpointAddress) int {
	return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(a.TargetRef.UID, b.TargetRef.UID))
}

// addressOf is a pod's address in the Service's first family, and whether the pod counts.
func addressOf(svc *corev1.Service, p *corev1.Pod) (corev1.EndpointAddress, bool) {
	if p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
		return corev1.EndpointAddress{}, false
	}
	if p.DeletionTimestamp != nil && !svc.Spec.PublishNotReadyAddresses {
		return corev1.EndpointAddress{}, false
	}
	six := len(svc.Spec.IPFamilies) > 0 && svc.Spec.IPFamilies[0] == corev1.IPv6Protocol
	for _, candidate := range podIPs(p) {
		ip, err := netip.ParseAddr(candidate)
		if err != nil || ip.Is4() == six {
			continue
		}
		address := corev1.EndpointAddress{
			IP: candidate, NodeName: ptr.To(p.Spec.NodeName),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		}
		if p.Spec.Hostname != "" && p.Spec.Subdomain == svc.Name && p.Namespace == svc.Namespace {
			address.Hostname = p.Spec.Hostname
		}
		return address, true
	}
	return corev1.EndpointAddress{}, false
}

func podIPs(p *corev1.Pod) []string {
	if len(p.Status.PodIPs) == 0 && p.Status.PodIP != "" {
		return []string{p.Status.PodIP}
	}
	out := make([]string, len(p.Status.PodIPs))
	for i, ip := range p.Status.PodIPs {
		out[i] = ip.IP
	}
	return out
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// portsOf resolves the Service's ports for a pod; the key is the same for the same ports.
func portsOf(svc *corev1.Service, p *corev1.Pod) (ports []corev1.EndpointPort, key string) {
	for i := range svc.Spec.Ports {
		sp := &svc.Spec.Ports[i]
		number := sp.TargetPort.IntVal
		if sp.TargetPort.Type == intstr.String {
			if number = namedPort(p, sp.TargetPort.StrVal, sp.Protocol); number == 0 {
				continue
			}
		}
		ports = append(ports, corev1.EndpointPort{
			Name:        sp.Name,
			Port:        number,
			Protocol:    sp.Protocol,
			AppProtocol: sp.AppProtocol,
		})
	}
	slices.SortFunc(ports, func(a, b corev1.EndpointPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
	})
	var b strings.Builder
	for _, q := range ports {
		fmt.Fprintf(&b, "%s/%s/%d/%s;", q.Name, q.Protocol, q.Port, ptr.Deref(q.AppProtocol, ""))
	}
	return ports, b.String()
}

// namedPort finds the container port of that name, 0 if there is none. Sidecars count.
func namedPort(p *corev1.Pod, name string, protocol corev1.Protocol) int32 {
	containers := p.Spec.Containers
	for _, c := range p.Spec.InitContainers {
		if podfacts.IsSidecar(&c) {
			containers = append(containers[:len(containers):len(containers)], c)
		}
	}
	for _, c := range containers {
		for _, q := range c.Ports {
			if q.Name == name && q.Protocol == protocol {
				return q.ContainerPort
			}
		}
	}
	return 0
}

// fit leaves out what an object has no room for, addresses that are not ready first.
func fit(subsets []corev1.EndpointSubset, room int) (out []corev1.EndpointSubset, cut bool) {
	take := func(list []corev1.EndpointAddress) []corev1.EndpointAddress {
		n := min(len(list), room)
		room -= n
		cut = cut || n < len(list)
		return list[:n]
	}
	out = slices.Clone(subsets)
	for i := range out {
		out[i].Addresses = take(out[i].Addresses)
	}
	for i := range out {
		out[i].NotReadyAddresses = take(out[i].NotReadyAddresses)
	}
	return slices.DeleteFunc(out, func(s corev1.EndpointSubset) bool {
		return len(s.Addresses)+len(s.NotReadyAddresses) == 0
	}), cut
}
