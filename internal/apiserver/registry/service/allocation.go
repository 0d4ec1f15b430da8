package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

// Node ports are given out from this range, as in Kubernetes.
const (
	firstNodePort = 30000
	lastNodePort  = 32767
)

// allocator gives Services their addresses and node ports. It looks at the
// stored Services each time, under a lock that is held until the new one is
// stored: Services are few and change seldom, and there is nothing to repair
// after a crash.
type allocator struct {
	mu    sync.Mutex
	store *genericregistry.Store
	cidr  netip.Prefix
}

// Extend makes the storage allocate addresses from the CIDR.
func Extend(s *resource.Storage, cidr *net.IPNet) error {
	prefix, err := netip.ParsePrefix(cidr.String())
	if err != nil {
		return fmt.Errorf("read the service CIDR %s: %w", cidr, err)
	}
	a := &allocator{store: s.Store, cidr: prefix.Masked()}
	s.Store.BeginCreate = func(ctx context.Context, obj runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
		return a.begin(ctx, obj.(*corev1.Service), nil)
	}
	s.Store.BeginUpdate = func(ctx context.Context, obj, old runtime.Object, _ *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
		return a.begin(ctx, obj.(*corev1.Service), old.(*corev1.Service))
	}
	return nil
}

func (a *allocator) begin(ctx context.Context, svc, old *corev1.Service) (genericregistry.FinishFunc, error) {
	a.mu.Lock()
	finish := func(context.Context, bool) { a.mu.Unlock() }
	if old != nil {
		keepAllocated(svc, old)
	}
	taken, err := a.taken(ctx, svc)
	if err == nil {
		err = a.assign(svc, old, taken)
	}
	if err != nil {
		a.mu.Unlock()
		return nil, err
	}
	return finish, nil
}

// used is what the other Services hold. A node port belongs to one Service, which
// may have it for several protocols.
type used struct {
	addresses map[netip.Addr]string
	ports     map[int32]string
}

func (a *allocator) taken(ctx context.Context, svc *corev1.Service) (used, error) {
	u := used{addresses: map[netip.Addr]string{}, ports: map[int32]string{}}
	list, err := a.store.List(withoutNamespace(ctx), &metainternalversion.ListOptions{})
	if err != nil {
		return u, fmt.Errorf("list services: %w", err)
	}
	for i := range list.(*corev1.ServiceList).Items {
		other := &list.(*corev1.ServiceList).Items[i]
		if other.Namespace == svc.Namespace && other.Name == svc.Name {
			continue
		}
		name := other.Namespace + "/" + other.Name
		for _, text := range other.Spec.ClusterIPs {
			if ip, err := netip.ParseAddr(text); err == nil {
				u.addresses[ip] = name
			}
		}
		for _, p := range other.Spec.Ports {
			if p.NodePort != 0 {
				u.ports[p.NodePort] = name
			}
		}
		if other.Spec.HealthCheckNodePort != 0 {
			u.ports[other.Spec.HealthCheckNodePort] = name
		}
	}
	return u, nil
}

func (a *allocator) assign(svc, old *corev1.Service, u used) error {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if err := a.checkFamilies(svc); err != nil {
		return err
	}
	if svc.Spec.ClusterIP != corev1.ClusterIPNone {
		if err := a.assignAddress(svc, u); err != nil {
			return err
		}
	}
	if len(svc.Spec.ClusterIPs) == 0 && svc.Spec.ClusterIP != "" {
		svc.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	}
	if svc.Spec.IPFamilyPolicy == nil {
		single := corev1.IPFamilyPolicySingleStack
		svc.Spec.IPFamilyPolicy = &single
	}
	if len(svc.Spec.IPFamilies) == 0 {
		svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if err := assignNodePorts(svc, old, u); err != nil {
		return err
	}
	return assignHealthCheck(svc, old, u)
}

// checkFamilies refuses what needs addresses of a family that there are none of.
func (a *allocator) checkFamilies(svc *corev1.Service) error {
	ours := corev1.IPv4Protocol
	if a.cidr.Addr().Is6() {
		ours = corev1.IPv6Protocol
	}
	var errs field.ErrorList
	for i, family := range svc.Spec.IPFamilies {
		if family != ours && (family == corev1.IPv4Protocol || family == corev1.IPv6Protocol) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilies").Index(i), family, "not configured on this cluster"))
		}
	}
	if p := svc.Spec.IPFamilyPolicy; p != nil && *p == corev1.IPFamilyPolicyRequireDualStack {
		errs = append(errs, field.Invalid(field.NewPath("spec", "ipFamilyPolicy"), *p, "this cluster is not configured for dual-stack services"))
	}
	if len(errs) == 0 {
		return nil
	}
	return invalid(svc, errs...)
}

func (a *allocator) assignAddress(svc *corev1.Service, u used) error {
	path := field.NewPath("spec", "clusterIPs")
	if svc.Spec.ClusterIP == "" && len(svc.Spec.ClusterIPs) > 0 {
		return nil // Validation has its own words for this.
	}
	if svc.Spec.ClusterIP == "" {
		ip, err := a.free(u)
		if err != nil {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate a serviceIP: %w", err))
		}
		svc.Spec.ClusterIP = ip.String()
		return nil
	}
	ip, err := netip.ParseAddr(svc.Spec.ClusterIP)
	problem := ""
	switch {
	case err != nil:
		return nil // Validation has its own words for this.
	case !a.cidr.Contains(ip):
		problem = fmt.Sprintf("failed to allocate IP %s: the provided IP (%s) is not in the valid range. The range of valid IPs is %s", ip, ip, a.cidr)
	case u.addresses[ip] != "":
		problem = fmt.Sprintf("failed to allocate IP %s: provided IP is already allocated", ip)
	default:
		return nil
	}
	return invalid(svc, field.Invalid(path, []string{svc.Spec.ClusterIP}, problem))
}

// free picks a random free address, leaving the first ones, which clusters use
// for the API server and DNS, to those who ask for them by number.
func (a *allocator) free(u used) (netip.Addr, error) {
	size := 1 << min(a.cidr.Addr().BitLen()-a.cidr.Bits(), 16)
	const reserved = 16
	if size > 4*reserved {
		start := rand.IntN(size - reserved - 1)
		for i := range size - reserved - 1 {
			if ip := nth(a.cidr.Addr(), reserved+(start+i)%(size-reserved-1)); u.addresses[ip] == "" {
				return ip, nil
			}
		}
	}
	for i := 1; i < min(size-1, reserved); i++ {
		if ip := nth(a.cidr.Addr(), i); u.addresses[ip] == "" {
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("range is full: %s", a.cidr)
}

func nth(base netip.Addr, n int) netip.Addr {
	raw := base.AsSlice()
	for i := len(raw) - 1; i >= 0 && n > 0; i-- {
		n += int(raw[i])
		raw[i] = byte(n)
		n >>= 8
	}
	ip, _ := netip.AddrFromSlice(raw)
	return ip
}

func assignNodePorts(svc, old *corev1.Service, u used) error {
	wants := svc.Spec.Type == corev1.ServiceTypeNodePort ||
		svc.Spec.Type == corev1.ServiceTypeLoadBalancer && (svc.Spec.AllocateLoadBalancerNodePorts == nil || *svc.Spec.AllocateLoadBalancerNodePorts)
	name := svc.Namespace + "/" + svc.Name
	// Those that are asked for come before those that may be any.
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if wants && p.NodePort == 0 && old != nil {
			p.NodePort = previousNodePort(old, p)
		}
		if p.NodePort == 0 {
			continue
		}
		if problem := u.objection(p.NodePort, name); problem != "" {
			return invalid(svc, field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), p.NodePort, problem))
		}
		u.ports[p.NodePort] = name
	}
	for i := range svc.Spec.Ports {
		if p := &svc.Spec.Ports[i]; wants && p.NodePort == 0 {
			if p.NodePort = freePort(u); p.NodePort == 0 {
				return apierrors.NewInternalError(errors.New("failed to allocate a nodePort: range is full"))
			}
			u.ports[p.NodePort] = name
		}
	}
	return nil
}

// assignHealthCheck gives a Service the port at which nodes say whether they have
// endpoints of it.
func assignHealthCheck(svc, old *corev1.Service, u used) error {
	if !needsHealthCheck(svc) {
		return nil
	}
	if svc.Spec.HealthCheckNodePort == 0 && old != nil && needsHealthCheck(old) {
		svc.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
	switch port := svc.Spec.HealthCheckNodePort; port {
	case 0:
		if svc.Spec.HealthCheckNodePort = freePort(u); svc.Spec.HealthCheckNodePort == 0 {
			return apierrors.NewInternalError(errors.New("failed to allocate a HealthCheck NodePort: range is full"))
		}
	default:
		if problem := u.objection(port, ""); problem != "" {
			return apierrors.NewInternalError(fmt.Errorf("failed to allocate requested HealthCheck NodePort %v: %s", port, problem))
		}
	}
	return nil
}

// objection says why a node port cannot be given to a Service, or nothing.
func (u used) objection(port int32, name string) string {
	switch {
	case u.ports[port] != "" && u.ports[port] != name:
		return "provided port is already allocated"
	case port < firstNodePort || port > lastNodePort:
		return fmt.Sprintf("provided port is not in the valid range. The range of valid ports is %d-%d", firstNodePort, lastNodePort)
	}
	return ""
}

// previousNodePort keeps a port's node port when an update leaves it out.
func previousNodePort(old *corev1.Service, p *corev1.ServicePort) int32 {
	for _, o := range old.Spec.Ports {
		if o.Port == p.Port && o.Protocol == p.Protocol {
			return o.NodePort
		}
	}
	return 0
}

// freePort is a random port that nobody has, 0 when there is none.
func freePort(u used) int32 {
	const size = lastNodePort - firstNodePort + 1
	start := rand.Int32N(size)
	for i := range int32(size) {
		if port := firstNodePort + (start+i)%size; u.ports[port] == "" {
			return port
		}
	}
	return 0
}

func invalid(svc *corev1.Service, errs ...*field.Error) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), svc.Name, field.ErrorList(errs))
}
