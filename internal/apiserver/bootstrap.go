package apiserver

import (
	"context"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/apiserver/bootstrap"
)

// apiService is the Service through which pods reach the API.
const apiService = "kubernetes"

// bootstrapCluster makes the objects that every cluster has. It runs at every
// start, adds what is missing and points the Service at this server.
func bootstrapCluster(ctx context.Context, cfg Config, client kubernetes.Interface) error {
	if err := bootstrap.Ensure(ctx, client); err != nil {
		return err
	}
	if err := ensureService(ctx, cfg, client); err != nil {
		return fmt.Errorf("make the service %s: %w", apiService, err)
	}
	if err := ensureNameService(ctx, cfg, client); err != nil {
		return fmt.Errorf("make the service %s: %w", nameService, err)
	}
	if cfg.AdvertiseAddress == nil || cfg.AdvertiseAddress.IsLoopback() {
		// Nobody but this machine could use a loopback address.
		return nil
	}
	if err := ensureEndpoints(ctx, cfg, client); err != nil {
		return fmt.Errorf("point the service %s at this server: %w", apiService, err)
	}
	return nil
}

func ensureService(ctx context.Context, cfg Config, client kubernetes.Interface) error {
	ip := append(net.IP(nil), cfg.ServiceCIDR.IP.Mask(cfg.ServiceCIDR.Mask)...)
	ip[len(ip)-1]++
	_, err := client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: apiService, Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip.String(),
			Ports: []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt(cfg.AdvertisePort), Protocol: corev1.ProtocolTCP}},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// ensureEndpoints writes the server's address in both forms that clients read.
func ensureEndpoints(ctx context.Context, cfg Config, client kubernetes.Interface) error {
	address, port := cfg.AdvertiseAddress.String(), int32(cfg.AdvertisePort)
	name, protocol, ready := "https", corev1.ProtocolTCP, true
	wanted := &corev1.Endpoints{ //nolint:staticcheck // Old clients still read Endpoints.
		ObjectMeta: metav1.ObjectMeta{Name: apiService, Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}},
		Subsets: []corev1.EndpointSubset{{ //nolint:staticcheck // See above.
			Addresses: []corev1.EndpointAddress{{IP: address}},
			Ports:     []corev1.EndpointPort{{Name: name, Port: port, Protocol: protocol}},
		}},
	}
	endpoints := client.CoreV1().Endpoints(metav1.NamespaceDefault)
	current, err := endpoints.Get(ctx, apiService, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = endpoints.Create(ctx, wanted, metav1.CreateOptions{})
	case err == nil && !apiequality.Semantic.DeepEqual(current.Subsets, wanted.Subsets):
		wanted.ResourceVersion = current.ResourceVersion
		_, err = endpoints.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: apiService, Labels: map[string]string{discoveryv1.LabelServiceName: apiService}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	return ensureSlice(ctx, client, metav1.NamespaceDefault, slice)
}
