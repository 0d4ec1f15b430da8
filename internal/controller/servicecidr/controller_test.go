package servicecidr

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/everynode/everynode/internal/network/servicenetwork"
)

// A ServiceCIDR that is to go stays while the API has a Service with an address of it, also where the cache has none yet.
func TestAServiceThatTheCacheDoesNotKnow(t *testing.T) {
	leaving := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "more", Finalizers: []string{servicenetwork.Finalizer}, DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/28"}},
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "ns"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.97.0.3"}}}
	cache := fake.NewClientBuilder().WithObjects(leaving).Build()
	api := kubefake.NewClientset(leaving.DeepCopy(), service)
	c := controller{reader: cache, cfg: Config{Client: api, Configured: netip.MustParsePrefix("10.96.0.0/16")}}
	finalizers := func() int {
		t.Helper()
		got, err := api.NetworkingV1().ServiceCIDRs().Get(t.Context(), "more", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(got.Finalizers)
	}
	key := ctrl.Request{NamespacedName: types.NamespacedName{Name: "more"}}
	if result, err := c.Reconcile(t.Context(), key); err != nil || result.RequeueAfter == 0 || finalizers() != 1 {
		t.Errorf("with a Service: looked at again after %v, %d finalizers, %v", result.RequeueAfter, finalizers(), err)
	}
	if err := api.CoreV1().Services("ns").Delete(t.Context(), "s", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Reconcile(t.Context(), key); err != nil || finalizers() != 0 {
		t.Errorf("without: %d finalizers, %v", finalizers(), err)
	}
}
