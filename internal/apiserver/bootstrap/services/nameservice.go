package services

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// nameService is the Service with the cluster's DNS address.
const nameService = "kube-dns"

// namePort is where name servers answer.
const namePort = 53

// nameAddress is the cluster's DNS address: the tenth of the Services' network,
// where agents answer unless told otherwise. Invalid if the network is too small.
func nameAddress(cfg Network) netip.Addr {
	prefix, err := netip.ParsePrefix(cfg.ServiceCIDR.String())
	if err != nil {
		return netip.Addr{}
	}
	ip := prefix.Masked().Addr()
	for range 10 {
		ip = ip.Next()
	}
	if !prefix.Contains(ip) {
		return netip.Addr{}
	}
	return ip
}

// ensureNameService makes the Service of the name server, so that its address is
// taken and people find it. Every node answers at it by itself, so its endpoint is
// its own address: whoever carries traffic to Services leads it there.
func ensureNameService(ctx context.Context, cfg Network, client kubernetes.Interface) error {
	address := nameAddress(cfg)
	if !address.IsValid() {
		return nil
	}
	services := client.CoreV1().Services(metav1.NamespaceSystem)
	ports := []corev1.ServicePort{
		{Name: "dns", Port: namePort, TargetPort: intstr.FromInt32(namePort), Protocol: corev1.ProtocolUDP},
		{Name: "dns-tcp", Port: namePort, TargetPort: intstr.FromInt32(namePort), Protocol: corev1.ProtocolTCP},
	}
	svc, err := services.Get(ctx, nameService, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		svc, err = services.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: nameService, Labels: map[string]string{
				"k8s-app": nameService, "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "CoreDNS",
			}},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: address.String(), Ports: ports},
		}, metav1.CreateOptions{})
	}
	switch {
	case apierrors.IsInvalid(err):
		// Somebody else's Service has the address, such as a name server's own.
		klog.FromContext(ctx).Info("The cluster's DNS address is not given to the Service of the nodes' name servers",
			"service", nameService, "reason", err.Error())
		return nil
	case apierrors.IsAlreadyExists(err):
		return nil // Another server makes it, and what follows.
	case err != nil:
		return err
	}
	slices := client.DiscoveryV1().EndpointSlices(metav1.NamespaceSystem)
	if len(svc.Spec.Selector) > 0 || svc.Spec.ClusterIP != address.String() {
		// A name server that runs in pods has taken over.
		if err := slices.Delete(ctx, nameService, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	}
	return ensureSlice(ctx, client, metav1.NamespaceSystem, nameSlice(address, ports))
}

func nameSlice(address netip.Addr, ports []corev1.ServicePort) *discoveryv1.EndpointSlice {
	ready := true
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: nameService,
			Labels: map[string]string{discoveryv1.LabelServiceName: nameService}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
	if address.Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, p := range ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol})
	}
	return slice
}

// ensureSlice creates an EndpointSlice, or gives it the endpoints and ports wanted.
func ensureSlice(ctx context.Context, client kubernetes.Interface, namespace string,
	wanted *discoveryv1.EndpointSlice) error {
	slices := client.DiscoveryV1().EndpointSlices(namespace)
	old, err := slices.Get(ctx, wanted.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = slices.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil && (!apiequality.Semantic.DeepEqual(old.Endpoints, wanted.Endpoints) ||
		!apiequality.Semantic.DeepEqual(old.Ports, wanted.Ports)):
		wanted.ResourceVersion = old.ResourceVersion
		_, err = slices.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	return err
}
