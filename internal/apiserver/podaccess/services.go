package podaccess

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// lookupTimeout bounds the look-up of a Service; it is a question to this server itself.
const lookupTimeout = 10 * time.Second

// Services leads from Services to their endpoints.
type Services struct{ client kubernetes.Interface }

// NewServices reads Services through the client.
func NewServices(client kubernetes.Interface) *Services { return &Services{client} }

// ResolveEndpoint implements the library's webhook.ServiceResolver: it returns where a
// webhook that is given as a Service is reached, one of its ready endpoints. The server
// has no way to a Service's own address unless its machine is a node.
func (s *Services) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	svc, err := s.client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return &url.URL{Scheme: "https", Host: net.JoinHostPort(svc.Spec.ExternalName, strconv.Itoa(int(port)))}, nil
	}
	for _, p := range svc.Spec.Ports {
		if p.Port != port {
			continue
		}
		host, err := s.Endpoint(ctx, namespace, name, p.Name, func(e *discoveryv1.Endpoint) bool { return true })
		if err != nil {
			return nil, err
		}
		return &url.URL{Scheme: "https", Host: host}, nil
	}
	return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", port, name))
}

// Endpoint picks a ready endpoint of a Service at random, for its port of that name, if
// accept takes it. It returns a host that Dial understands.
func (s *Services) Endpoint(
	ctx context.Context, namespace, name, portName string, accept func(*discoveryv1.Endpoint) bool,
) (string, error) {
	slices, err := s.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + name, ResourceVersion: "0",
	})
	if err != nil {
		return "", fmt.Errorf("read the endpoints of service %q: %w", name, err)
	}
	for _, i := range rand.Perm(len(slices.Items)) {
		slice := &slices.Items[i]
		port := numbered(slice, portName)
		if port == 0 {
			continue
		}
		for _, j := range rand.Perm(len(slice.Endpoints)) {
			e := &slice.Endpoints[j]
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 || !accept(e) {
				continue
			}
			ip, err := Proxyable(e.Addresses[0])
			if err != nil {
				continue
			}
			address := netip.AddrPortFrom(ip, port)
			if e.NodeName != nil && *e.NodeName != "" {
				return PodHost(*e.NodeName, address), nil
			}
			return address.String(), nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
}

// numbered is the number of a slice's port of that name, 0 if it has none.
func numbered(slice *discoveryv1.EndpointSlice, name string) uint16 {
	for _, p := range slice.Ports {
		if p.Name != nil && *p.Name == name && p.Port != nil && *p.Port > 0 && *p.Port < 1<<16 {
			return uint16(*p.Port)
		}
	}
	return 0
}
