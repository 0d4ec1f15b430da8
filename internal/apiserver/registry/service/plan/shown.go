package plan

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// addressHolder begins the holder of a name that an IPAddress holds by itself. No namespace is called so.
	addressHolder = "ipaddresses.networking.k8s.io/"
	// manager is whose the IPAddresses of Services are, in their label.
	manager = "ipallocator.k8s.io"
	// parents is the resource that they belong to.
	parents = "services"
)

// AddressHolder is how it is written that an IPAddress holds its address by itself, for something that is no Service.
func AddressHolder(a *networkingv1.IPAddress) string {
	return addressHolder + a.Name + "/" + string(a.UID)
}

// AddressNames are what an IPAddress holds by itself.
func AddressNames(a *networkingv1.IPAddress) []string {
	ip, err := netip.ParseAddr(a.Name)
	if err != nil {
		return nil
	}
	return []string{AddressName(ip)}
}

// ServiceOf is the namespace and the name of the Service that is written to hold something; false if it is none.
func ServiceOf(holder string) (namespace, name string, ok bool) {
	parts := strings.SplitN(holder, "/", 3)
	if len(parts) != 3 || strings.HasPrefix(holder, addressHolder) {
		return "", "", false
	}
	return parts[0], parts[1], true
}

// Shown is the IPAddress that shows whose an address is: that of the Service.
func Shown(s *corev1.Service, ip netip.Addr) *networkingv1.IPAddress {
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: ip.String(), Labels: map[string]string{
			networkingv1.LabelIPAddressFamily: string(Family(ip)), networkingv1.LabelManagedBy: manager,
		}},
		Spec: networkingv1.IPAddressSpec{
			ParentRef: &networkingv1.ParentReference{Resource: parents, Namespace: s.Namespace, Name: s.Name},
		},
	}
}

// Family is that of an address.
func Family(ip netip.Addr) corev1.IPFamily {
	if ip.Is6() {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// shows says whether the IPAddress is the Service's.
func shows(a *networkingv1.IPAddress, s *corev1.Service) bool {
	ip, err := netip.ParseAddr(a.Name)
	if err != nil || a.Spec.ParentRef == nil {
		return false
	}
	wanted := Shown(s, ip)
	for label, value := range wanted.Labels {
		if a.Labels[label] != value {
			return false
		}
	}
	return *a.Spec.ParentRef == *wanted.Spec.ParentRef
}

// Do is what is to be done about an IPAddress.
type Do string

// All that may have to be done.
const (
	// Show writes the IPAddress of a Service, in place of what is there.
	Show Do = "show"
	// Discard deletes an IPAddress of a Service that there is not.
	Discard Do = "discard"
	// Take has an IPAddress of something else hold its address.
	Take Do = "take"
	// Free gives back the address of an IPAddress that there is not.
	Free Do = "free"
)

// Mending is one thing to be done.
type Mending struct {
	Do   Do
	Name string
	// Service is the one to show, Address what is there, and Holder whose it is written to be.
	Service *corev1.Service
	Address *networkingv1.IPAddress
	Holder  string
}

// Mend says what differs between who is written to hold addresses, the Services, and the IPAddresses that show it. A
// version that knew no IPAddresses made none, deleted none, and gave back what they held.
func Mend(services []*corev1.Service, addresses []*networkingv1.IPAddress, holders map[string]string) (out []Mending) {
	owners, there := map[string]*corev1.Service{}, map[string]*networkingv1.IPAddress{}
	for _, s := range services {
		for _, name := range Names(s) {
			if holders[name] == Holder(s) {
				owners[name] = s
			}
		}
	}
	for _, a := range addresses {
		for _, name := range AddressNames(a) {
			there[name] = a
		}
	}
	names := slices.Concat(slices.Collect(maps.Keys(holders)), slices.Collect(maps.Keys(there)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if ip, _ := Parse(name); !ip.IsValid() {
			continue
		}
		m := Mending{Name: name, Service: owners[name], Address: there[name], Holder: holders[name]}
		m.Do = m.needed()
		if m.Do != "" {
			out = append(out, m)
		}
	}
	return out
}

func (m Mending) needed() Do {
	switch {
	case m.Service != nil:
		if m.Address == nil || !shows(m.Address, m.Service) {
			return Show
		}
	case m.Address == nil:
		if strings.HasPrefix(m.Holder, addressHolder) {
			return Free
		}
	case m.Holder == "":
		if m.Address.Labels[networkingv1.LabelManagedBy] == manager {
			return Discard
		}
		return Take
	}
	return ""
}
