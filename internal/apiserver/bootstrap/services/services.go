// Package services makes the Services that every cluster has: the one of the API and the one of the name server, and
// the network that their addresses come from.
package services

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/network/servicenetwork"
)

// Network is where the Services of a cluster have their addresses.
type Network struct {
	// ServiceCIDR is where the addresses of Services come from.
	ServiceCIDR *net.IPNet
	// Port is the one at which the servers answer.
	Port int
	// Alone is where the API answers, if this server is the only one; otherwise it is invalid.
	Alone netip.AddrPort
}

// apiService is the Service through which pods reach the API.
const apiService = "kubernetes"

// Ensure adds what is missing, at every start, and points the Service of the API at this server if it is the only one.
func Ensure(ctx context.Context, cfg Network, client kubernetes.Interface) error {
	if err := ensureServiceCIDR(ctx, cfg, client); err != nil {
		return fmt.Errorf("make the ServiceCIDR %s: %w", servicenetwork.Default, err)
	}
	if err := ensureService(ctx, cfg, client); err != nil {
		return fmt.Errorf("make the service %s: %w", apiService, err)
	}
	if err := ensureNameService(ctx, cfg, client); err != nil {
		return fmt.Errorf("make the service %s: %w", nameService, err)
	}
	if !cfg.Alone.IsValid() {
		return nil
	}
	if err := PointAt(ctx, client, []netip.AddrPort{cfg.Alone}); err != nil {
		return fmt.Errorf("point the service %s at this server: %w", apiService, err)
	}
	return nil
}

// ensureServiceCIDR makes the network that Services have addresses of from the start. One that is there stays as it is;
// its control loop tells if it is another one than this server was started with.
func ensureServiceCIDR(ctx context.Context, cfg Network, client kubernetes.Interface) error {
	cidrs := client.NetworkingV1().ServiceCIDRs()
	if _, err := cidrs.Get(ctx, servicenetwork.Default, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	_, err := cidrs.Create(ctx, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: servicenetwork.Default},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{cfg.ServiceCIDR.String()}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// ensureService makes the Service of the API. One that is there stays as it is, also where its address could not be had
// any more: its ServiceCIDR is to go, or is another one than this server was started with.
func ensureService(ctx context.Context, cfg Network, client kubernetes.Interface) error {
	services := client.CoreV1().Services(metav1.NamespaceDefault)
	if _, err := services.Get(ctx, apiService, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return err
	}
	ip := append(net.IP(nil), cfg.ServiceCIDR.IP.Mask(cfg.ServiceCIDR.Mask)...)
	ip[len(ip)-1]++
	_, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: apiService,
			Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip.String(),
			Ports: []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt(cfg.Port),
				Protocol: corev1.ProtocolTCP}},
		},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case apierrors.IsInvalid(err):
		// Another has the address, or no ServiceCIDR. Who but this server would let anybody change that?
		klog.FromContext(ctx).Error(
			err,
			"Pods find no API, since its Service cannot be made; free its address, and start the server again",
			"service", apiService, "address", ip,
		)
		return nil
	}
	return err
}

// PointAt has the Service of the API lead to these servers, which serve at one port. It writes the servers' addresses
// in both forms that clients read. Loopback
// addresses are left out: nobody but their machine could use them.
func PointAt(ctx context.Context, client kubernetes.Interface, servers []netip.AddrPort) error {
	var addresses []corev1.EndpointAddress
	var endpoints []discoveryv1.Endpoint
	name, protocol, ready, port := "https", corev1.ProtocolTCP, true, int32(0)
	for _, s := range servers {
		if s.Addr().IsLoopback() {
			continue
		}
		port = int32(s.Port())
		addresses = append(addresses, corev1.EndpointAddress{IP: s.Addr().String()})
		endpoints = append(endpoints, discoveryv1.Endpoint{Addresses: []string{s.Addr().String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready}})
	}
	if len(addresses) == 0 {
		return nil
	}
	wanted := &corev1.Endpoints{ //nolint:staticcheck // Old clients still read Endpoints.
		ObjectMeta: metav1.ObjectMeta{Name: apiService, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		Subsets: []corev1.EndpointSubset{{ //nolint:staticcheck // See above.
			Addresses: addresses, Ports: []corev1.EndpointPort{{Name: name, Port: port, Protocol: protocol}},
		}},
	}
	old := client.CoreV1().Endpoints(metav1.NamespaceDefault)
	current, err := old.Get(ctx, apiService, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = old.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil && !apiequality.Semantic.DeepEqual(current.Subsets, wanted.Subsets):
		wanted.ResourceVersion = current.ResourceVersion
		_, err = old.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: apiService,
			Labels: map[string]string{discoveryv1.LabelServiceName: apiService}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpoints,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	return ensureSlice(ctx, client, metav1.NamespaceDefault, slice)
}
