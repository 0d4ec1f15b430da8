package services

import (
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func withServices(t *testing.T, cidr string) Network {
	t.Helper()
	_, network, err := net.ParseCIDR(cidr)
	if err != nil {
		t.Fatal(err)
	}
	return Network{ServiceCIDR: network}
}

func TestNameServiceLeadsToItself(t *testing.T) {
	cfg, client := withServices(t, "10.96.0.0/16"), fake.NewClientset()
	for range 2 {
		if err := ensureNameService(t.Context(), cfg, client); err != nil {
			t.Fatal(err)
		}
	}
	svc, err := client.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil || svc.Spec.ClusterIP != "10.96.0.10" || len(svc.Spec.Ports) != 2 {
		t.Fatalf("the service is %v (%v)", svc, err)
	}
	slice, err := client.DiscoveryV1().EndpointSlices("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil || slice.Endpoints[0].Addresses[0] != "10.96.0.10" || *slice.Ports[0].Name != "dns" ||
		*slice.Ports[1].Name != "dns-tcp" {
		t.Fatalf("the endpoint slice is %v (%v)", slice, err)
	}
	// A name server in pods takes over: the Service gets a selector.
	svc = svc.DeepCopy()
	svc.Spec.Selector = map[string]string{"k8s-app": "kube-dns"}
	if _, err := client.CoreV1().Services("kube-system").Update(t.Context(), svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := ensureNameService(t.Context(), cfg, client); err != nil {
		t.Fatal(err)
	}
	if _, err := client.DiscoveryV1().EndpointSlices("kube-system").Get(t.Context(), "kube-dns",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the nodes' own endpoint is still there beside a selector: %v", err)
	}
}

func TestNameServiceNeedsRoom(t *testing.T) {
	client := fake.NewClientset(&corev1.Namespace{})
	if err := ensureNameService(t.Context(), withServices(t, "10.96.0.0/29"), client); err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 {
		t.Errorf("in a network of eight addresses: %v, %v", list, err)
	}
}
