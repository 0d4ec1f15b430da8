package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
)

func plainService(name, ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 1}}}}
}

// checkShown fails unless there is an IPAddress for each address of a Service, and for nothing else.
func checkShown(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	eventually(t, "IPAddresses show the addresses of Services", func(ctx context.Context) error {
		services, err := client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		shown, err := client.NetworkingV1().IPAddresses().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		wanted := map[string]string{}
		for _, s := range services.Items {
			if _, err := netip.ParseAddr(s.Spec.ClusterIP); err == nil {
				wanted[s.Spec.ClusterIP] = s.Namespace + "/" + s.Name
			}
		}
		for _, a := range shown.Items {
			if of := a.Spec.ParentRef.Namespace + "/" + a.Spec.ParentRef.Name; wanted[a.Name] != of {
				return fmt.Errorf("%s is shown to be of %s, and is of %q", a.Name, of, wanted[a.Name])
			}
			delete(wanted, a.Name)
		}
		if len(wanted) > 0 {
			return fmt.Errorf("not shown: %v", wanted)
		}
		return nil
	})
}

// Two servers give out addresses of a network that is made, deleted and made again: no Service is ever left with an
// address of none.
func TestNoServiceIsLeftWithoutItsNetwork(t *testing.T) {
	t.Parallel()
	s, one := first(t, "10.96.0.0/24")
	clients := []kubernetes.Interface{one, another(t, s, s.etcd.OpenReserving)}
	ctx := t.Context()
	for round := range 8 {
		name := fmt.Sprintf("more-%d", round)
		cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/24"}}}
		if _, err := clients[round%2].NetworkingV1().ServiceCIDRs().Create(ctx, cidr, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var won []string
		atOnce(7, func(i int) {
			if i == 6 {
				if err := clients[round%2].NetworkingV1().ServiceCIDRs().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
				return
			}
			service := fmt.Sprintf("s-%d-%d", round, i)
			_, err := clients[i%2].CoreV1().Services("default").Create(ctx, plainService(service, fmt.Sprintf("10.97.0.%d", 1+i/2)), metav1.CreateOptions{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won = append(won, service)
			case !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "is not in the valid range") && !strings.Contains(err.Error(), "is already allocated"):
				t.Errorf("round %d: %v", round, err)
			}
		})
		checkUnique(t, one)
		// As long as one of them lives, the network does.
		for _, service := range won {
			if _, err := one.NetworkingV1().ServiceCIDRs().Get(ctx, name, metav1.GetOptions{}); err != nil {
				t.Fatalf("round %d: %d Services have its addresses: %v", round, len(won), err)
			}
			if err := one.CoreV1().Services("default").Delete(ctx, service, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
		eventually(t, name+" is gone", func(ctx context.Context) error {
			_, err := clients[1].NetworkingV1().ServiceCIDRs().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is there"))
		})
	}
	checkShown(t, one)

	// With a second network there are so many more addresses.
	cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "last"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.99.0.0/28"}}}
	if _, err := one.NetworkingV1().ServiceCIDRs().Create(ctx, cidr, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const there, free = 2, 254 + 14 - 2 // kubernetes and kube-dns
	atOnce(free, func(i int) {
		if _, err := clients[i%2].CoreV1().Services("default").Create(ctx, plainService(fmt.Sprintf("full-%d", i), ""), metav1.CreateOptions{}); err != nil {
			t.Errorf("address %d: %v", i, err)
		}
	})
	if n := checkUnique(t, clients[1]); n != there+free {
		t.Errorf("there are %d Services, want %d", n, there+free)
	}
	_, err := one.CoreV1().Services("default").Create(ctx, plainService("none-left", ""), metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) || !strings.HasSuffix(err.Error(), "failed to allocate a serviceIP: range is full") {
		t.Errorf("without an address left: %v", err)
	}
	checkShown(t, one)
}

// interrupted is a storage in which something happens between the moment in which it is known what must stay as it is, and
// the write.
type interrupted struct {
	*apistorage.Reserving
	happens func()
}

func (s interrupted) GuardNames(guard func(context.Context, runtime.Object, []string) (map[string]int64, error)) {
	s.Reserving.GuardNames(func(ctx context.Context, obj runtime.Object, names []string) (map[string]int64, error) {
		unchanged, err := guard(ctx, obj, names)
		s.happens()
		return unchanged, err
	})
}

// A server that stands still after it has chosen an address does not give it to a Service once the network is gone.
func TestAddressOfANetworkThatWentMeanwhile(t *testing.T) {
	t.Parallel()
	s, one := first(t, "10.96.0.0/24")
	ctx, cidrs := t.Context(), one.NetworkingV1().ServiceCIDRs()
	var armed atomic.Bool
	// vanish has the network go, and returns when it is gone.
	vanish := func() {
		if !armed.CompareAndSwap(true, false) {
			return
		}
		err := cidrs.Delete(ctx, "more", metav1.DeleteOptions{})
		for deadline := time.Now().Add(2 * time.Minute); err == nil && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			_, err = cidrs.Get(ctx, "more", metav1.GetOptions{})
		}
		if !apierrors.IsNotFound(err) {
			t.Errorf("the network is not gone: %v", err)
		}
	}
	slow := another(t, s, func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, prefix string,
		holds func(runtime.Object) (string, []string)) (storage.Interface, error) {
		opened, err := s.etcd.OpenReserving(c, newObject, newList, prefix, holds)
		if err != nil {
			return nil, err
		}
		return interrupted{opened.(*apistorage.Reserving), vanish}, nil
	})
	more := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/24"}}}
	if _, err := cidrs.Create(ctx, more, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	_, err := slow.CoreV1().Services("default").Create(ctx, plainService("late", "10.97.0.7"), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "The range of valid IPs is 10.96.0.0/24") {
		t.Errorf("an address of a network that went meanwhile: %v", err)
	}
	if armed.Load() {
		t.Error("nothing happened meanwhile")
	}
	if _, err := one.NetworkingV1().IPAddresses().Get(ctx, "10.97.0.7", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it is shown: %v", err)
	}
}

// What a server makes at its start and finds there stays, and does not keep the server from starting: not if nobody could make
// it now, since a policy is against it, the network is to go, or the server was started with another one.
func TestStartWithWhatThereIs(t *testing.T) {
	t.Parallel()
	s, one := first(t, "10.96.0.0/24")
	ctx, cidrs := t.Context(), one.NetworkingV1().ServiceCIDRs()
	before, err := one.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	policies := one.AdmissionregistrationV1()
	_, err = policies.ValidatingAdmissionPolicies().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "no-networks"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{"CREATE"},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{"networking.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"servicecidrs"}}},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no more networks"}},
		},
	}, metav1.CreateOptions{})
	if err == nil {
		_, err = policies.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "no-networks"},
			Spec:       admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "no-networks", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policy counts", func(ctx context.Context) error {
		cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/24"}}}
		if _, err := cidrs.Create(ctx, cidr, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil || !strings.Contains(err.Error(), "no more networks") {
			return fmt.Errorf("a network is made: %w", err)
		}
		return nil
	})
	if err := cidrs.Delete(ctx, "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"10.96.0.0/24", "10.98.0.0/24"} {
		_, prefix, err := net.ParseCIDR(network)
		if err != nil {
			t.Fatal(err)
		}
		after, err := anotherOf(t, s, s.etcd.OpenReserving, prefix).CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil || after.UID != before.UID || after.Spec.ClusterIP != before.Spec.ClusterIP {
			t.Errorf("started with %s: %+v, %v", network, after, err)
		}
	}
	// And it is undone: by another one of the same network, beside which the first can go, and is made again.
	if err := policies.ValidatingAdmissionPolicyBindings().Delete(ctx, "no-networks", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the network is made again", func(ctx context.Context) error {
		same := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "same"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/24"}}}
		if _, err := cidrs.Create(ctx, same, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		again, err := cidrs.Get(ctx, "kubernetes", metav1.GetOptions{})
		if err == nil && again.DeletionTimestamp != nil {
			err = errors.New("the first is about to go")
		}
		return err
	})
}

// showless is the storage of a version that knew no IPAddresses.
func showless(s *Server) func(*storagebackend.ConfigForResource, func() runtime.Object, func() runtime.Object, string,
	func(runtime.Object) (string, []string)) (storage.Interface, error) {
	return func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, prefix string,
		holds func(runtime.Object) (string, []string)) (storage.Interface, error) {
		opened, err := s.etcd.OpenReserving(c, newObject, newList, prefix, holds)
		if err != nil {
			return nil, err
		}
		return ignorant{opened.(*apistorage.Reserving)}, nil
	}
}

type ignorant struct{ *apistorage.Reserving }

func (ignorant) ShowNames(func(runtime.Object, string) (string, []byte, error)) {}
func (ignorant) ShowAgain(context.Context, runtime.Object, string, int64) error { return nil }

func TestServicesOfOlderDataAreShown(t *testing.T) {
	t.Parallel()
	s, one := first(t, "10.96.0.0/24")
	old := another(t, s, showless(s))
	ctx := t.Context()
	if _, err := one.CoreV1().Services("default").Create(ctx, plainService("new", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.CoreV1().Services("default").Create(ctx, plainService("old", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The older one takes the Service away, and leaves what shows it.
	if err := old.CoreV1().Services("default").Delete(ctx, "new", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	checkShown(t, another(t, s, s.etcd.OpenReserving))
}
