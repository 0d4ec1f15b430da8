package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/everynode/everynode/internal/apiserver/registry/service/plan"
	"github.com/everynode/everynode/internal/network/servicenetwork"
)

// Reservations is what the database knows of who holds which name. The storage of
// Services takes and gives back the names of each Service in the transaction that
// writes it; see Holds.
type Reservations interface {
	holders
	Objects
	mender
	// Repair makes what is written agree with the objects, as assign decides.
	Repair(
		ctx context.Context,
		assign func(objects []runtime.Object, holders map[string]string) (owners map[string]runtime.Object, free []string),
	) error
	// ShowNames has an object kept beside each name, with it; GuardNames has names taken only while something else stays
	// as it is.
	ShowNames(show func(holder runtime.Object, name string) (key string, value []byte, err error))
	GuardNames(guard func(ctx context.Context, obj runtime.Object, names []string) (map[string]int64, error))
}

type holders interface {
	// Holders returns who holds the names; those that are free are missing.
	Holders(ctx context.Context, names ...string) (map[string]string, error)
	// AllHolders returns who holds which of the names that begin so.
	AllHolders(ctx context.Context, beginning string) (map[string]string, error)
}

// Holds says who a Service is, and which names it holds: its addresses and node ports.
func Holds(obj runtime.Object) (holder string, names []string) {
	s := obj.(*corev1.Service)
	return plan.Holder(s), plan.Names(s)
}

// allocator chooses addresses and node ports for Services. It promises nothing: the
// write that follows takes what was chosen, and is refused if somebody was quicker.
type allocator struct {
	reservations holders
	networks     *networks
	// checked is closed when what is written agrees with the Services that there are.
	checked <-chan struct{}
}

func (a *allocator) beginCreate(ctx context.Context, obj runtime.Object,
	o *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
	return a.begin(ctx, obj.(*corev1.Service), nil, dryrun.IsDryRun(o.DryRun))
}

func (a *allocator) beginUpdate(ctx context.Context, obj, old runtime.Object,
	o *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
	return a.begin(ctx, obj.(*corev1.Service), old.(*corev1.Service), dryrun.IsDryRun(o.DryRun))
}

func (a *allocator) begin(ctx context.Context, svc, old *corev1.Service, dry bool) (genericregistry.FinishFunc, error) {
	select {
	case <-a.checked:
	case <-ctx.Done():
		return nil, apierrors.NewServiceUnavailable(
			"the addresses of the existing Services are still being checked; try again",
		)
	}
	if old != nil {
		keepAllocated(svc, old)
		keepPorts(svc, old)
	}
	u, err := a.taken(ctx, svc, old)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	u.anyPort = dry
	if err := a.assign(svc, u); err != nil {
		return nil, err
	}
	return func(context.Context, bool) {}, nil
}

// used is what others hold. A node port belongs to one Service, which may have it for
// several protocols.
type used struct {
	addresses map[netip.Addr]bool
	ports     map[int32]bool
	// mine are the ports that the Service has already.
	mine map[int32]bool
	// kept are the addresses that the Service has already, and networks where others come from.
	kept     map[netip.Addr]bool
	networks []servicenetwork.Network
	// anyPort leaves open whether a port is in the range, as a dry run does.
	anyPort bool
}

// taken finds out what others hold of that which matters for the Service.
func (a *allocator) taken(ctx context.Context, svc, old *corev1.Service) (used, error) {
	own := map[string]bool{}
	if old != nil {
		for _, name := range plan.Names(old) {
			own[name] = true
		}
	}
	asked := slices.DeleteFunc(slices.Clone(namesOf(svc)), func(name string) bool { return own[name] })
	u := used{
		addresses: map[netip.Addr]bool{},
		ports:     map[int32]bool{},
		mine:      map[int32]bool{},
		kept:      map[netip.Addr]bool{},
	}
	held, err := a.reservations.Holders(ctx, asked...)
	if err != nil {
		return used{}, err
	}
	if needsAddress(svc) || slices.ContainsFunc(asked, func(name string) bool {
		ip, _ := plan.Parse(name)
		return ip.IsValid()
	}) {
		u.networks, err = a.networks.list(ctx)
		if err != nil {
			return used{}, err
		}
	}
	for beginning, wanted := range map[string]bool{plan.Addresses: needsAddress(svc), plan.NodePorts: needsPorts(svc)} {
		if !wanted {
			continue
		}
		all, err := a.reservations.AllHolders(ctx, beginning)
		if err != nil {
			return used{}, err
		}
		maps.Copy(held, all)
	}
	for name, holder := range held {
		// One that has the same name exists, and that is what is wrong then.
		if own[name] || strings.HasPrefix(holder, svc.Namespace+"/"+svc.Name+"/") {
			continue
		}
		note(name, u.addresses, u.ports)
	}
	for name := range own {
		note(name, u.kept, u.mine)
	}
	return u, nil
}

// note adds what a name stands for, an address or a port, to those of its kind.
func note(name string, addresses map[netip.Addr]bool, ports map[int32]bool) {
	if ip, port := plan.Parse(name); ip.IsValid() {
		addresses[ip] = true
	} else {
		ports[port] = true
	}
}

// namesOf are the names of a Service that may not repeat its address in the list yet.
func namesOf(svc *corev1.Service) []string {
	if len(svc.Spec.ClusterIPs) > 0 || svc.Spec.ClusterIP == "" {
		return plan.Names(svc)
	}
	listed := *svc
	listed.Spec.ClusterIPs = []string{svc.Spec.ClusterIP}
	return plan.Names(&listed)
}

func needsAddress(svc *corev1.Service) bool {
	return hasAddress(svc) && svc.Spec.ClusterIP == "" && len(svc.Spec.ClusterIPs) == 0
}

// needsPorts says whether a Service gets node ports that it does not name.
func needsPorts(svc *corev1.Service) bool {
	if !hasAddress(svc) {
		return false
	}
	for i := range svc.Spec.Ports {
		if publishes(svc) && svc.Spec.Ports[i].NodePort == 0 {
			return true
		}
	}
	return needsHealthCheck(svc) && svc.Spec.HealthCheckNodePort == 0
}

// publishes says whether each port of a Service has a node port.
func publishes(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeNodePort ||
		svc.Spec.Type == corev1.ServiceTypeLoadBalancer &&
			(svc.Spec.AllocateLoadBalancerNodePorts == nil || *svc.Spec.AllocateLoadBalancerNodePorts)
}

func (a *allocator) assign(svc *corev1.Service, u used) error {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	if err := a.checkFamilies(svc); err != nil {
		return err
	}
	if svc.Spec.ClusterIP != corev1.ClusterIPNone {
		if err := assignAddress(svc, u); err != nil {
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
	if err := assignNodePorts(svc, u); err != nil {
		return err
	}
	return assignHealthCheck(svc, u)
}

// checkFamilies refuses what needs addresses of a family that there are none of.
func (a *allocator) checkFamilies(svc *corev1.Service) error {
	ours := plan.Family(a.networks.configured.Addr())
	var errs field.ErrorList
	ip, err := netip.ParseAddr(svc.Spec.ClusterIP)
	if err == nil && len(svc.Spec.IPFamilies) == 0 && plan.Family(ip) != ours {
		at := field.NewPath("spec", "clusterIPs").Index(0)
		problem := string(plan.Family(ip)) + " is not configured on this cluster"
		return invalid(svc, field.Invalid(at, []string{svc.Spec.ClusterIP}, problem))
	}
	for i, family := range svc.Spec.IPFamilies {
		if family != ours && (family == corev1.IPv4Protocol || family == corev1.IPv6Protocol) {
			errs = append(errs, field.Invalid(
				field.NewPath("spec", "ipFamilies").Index(i), family, "not configured on this cluster",
			))
		}
	}
	if p := svc.Spec.IPFamilyPolicy; p != nil && *p == corev1.IPFamilyPolicyRequireDualStack {
		errs = append(errs, field.Invalid(
			field.NewPath("spec", "ipFamilyPolicy"), *p, "this cluster is not configured for dual-stack services",
		))
	}
	if len(errs) == 0 {
		return nil
	}
	return invalid(svc, errs...)
}

func assignAddress(svc *corev1.Service, u used) error {
	path := field.NewPath("spec", "clusterIPs")
	if svc.Spec.ClusterIP == "" && len(svc.Spec.ClusterIPs) > 0 {
		return nil // Validation has its own words for this.
	}
	if svc.Spec.ClusterIP == "" {
		ip, ok := servicenetwork.Free(u.networks, func(ip netip.Addr) bool { return u.addresses[ip] }, rand.Uint64N)
		if !ok {
			return apierrors.NewInternalError(errors.New("failed to allocate a serviceIP: range is full"))
		}
		svc.Spec.ClusterIP = ip.String()
		return nil
	}
	ip, err := netip.ParseAddr(svc.Spec.ClusterIP)
	problem := ""
	switch {
	case err != nil:
		return nil // Validation has its own words for this.
	case u.kept[ip.Unmap()]:
		return nil
	case !covered(u.networks, ip):
		problem = fmt.Sprintf(
			"failed to allocate IP %s: the provided IP (%s) is not in the valid range. The range of valid IPs is %s",
			ip, ip, ranges(u.networks),
		)
	case u.addresses[ip]:
		problem = fmt.Sprintf("failed to allocate IP %s: provided IP is already allocated", ip)
	default:
		return nil
	}
	return invalid(svc, field.Invalid(path, []string{svc.Spec.ClusterIP}, problem))
}

func covered(networks []servicenetwork.Network, ip netip.Addr) bool {
	_, ok := servicenetwork.Covering(networks, ip)
	return ok
}

func assignNodePorts(svc *corev1.Service, u used) error {
	chosen := map[int32]bool{}
	// Those that are asked for come before those that may be any.
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if p.NodePort == 0 {
			continue
		}
		if problem := u.objection(p.NodePort); problem != "" {
			return invalid(svc, field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), p.NodePort, problem))
		}
		chosen[p.NodePort] = true
	}
	maps.Copy(u.ports, chosen)
	for i := range svc.Spec.Ports {
		if p := &svc.Spec.Ports[i]; publishes(svc) && p.NodePort == 0 {
			p.NodePort = freePort(u)
			if p.NodePort == 0 {
				return apierrors.NewInternalError(errors.New("failed to allocate a nodePort: range is full"))
			}
			u.ports[p.NodePort] = true
		}
	}
	return nil
}

// assignHealthCheck gives a Service the port at which nodes say whether they have
// endpoints of it.
func assignHealthCheck(svc *corev1.Service, u used) error {
	if !needsHealthCheck(svc) {
		return nil
	}
	switch port := svc.Spec.HealthCheckNodePort; port {
	case 0:
		svc.Spec.HealthCheckNodePort = freePort(u)
		if svc.Spec.HealthCheckNodePort == 0 {
			return apierrors.NewInternalError(errors.New("failed to allocate a HealthCheck NodePort: range is full"))
		}
	default:
		if problem := u.objection(port); problem != "" {
			return apierrors.NewInternalError(fmt.Errorf(
				"failed to allocate requested HealthCheck NodePort %v: %s", port, problem,
			))
		}
	}
	return nil
}

// objection says why a node port cannot be given to a Service, or nothing.
func (u used) objection(port int32) string {
	switch {
	case u.ports[port]:
		return "provided port is already allocated"
	case u.mine[port] || u.anyPort:
		return ""
	case port < plan.FirstNodePort || port > plan.LastNodePort:
		return fmt.Sprintf(
			"provided port is not in the valid range. The range of valid ports is %d-%d", plan.FirstNodePort, plan.LastNodePort,
		)
	}
	return ""
}

// keepPorts gives a changed Service the node ports of the old one that the client did
// not repeat.
func keepPorts(svc, old *corev1.Service) {
	taken := map[int32]bool{}
	for _, p := range svc.Spec.Ports {
		taken[p.NodePort] = true
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		if !publishes(svc) || p.NodePort != 0 {
			continue
		}
		// A port that is there twice is told of as that, and not of a node port that nobody asked for.
		if before := previousNodePort(old, p); !taken[before] {
			p.NodePort, taken[before] = before, true
		}
	}
	if needsHealthCheck(svc) && needsHealthCheck(old) && svc.Spec.HealthCheckNodePort == 0 {
		svc.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
	}
}

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
	const size = plan.LastNodePort - plan.FirstNodePort + 1
	start := rand.Int32N(size)
	for i := range int32(size) {
		if port := plan.FirstNodePort + (start+i)%size; !u.ports[port] && !u.mine[port] {
			return port
		}
	}
	return 0
}

func invalid(svc *corev1.Service, errs ...*field.Error) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), svc.Name, field.ErrorList(errs))
}
