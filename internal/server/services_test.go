package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/apiserver/storages"
	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
)

// first starts a server whose Services have so many addresses, and returns a client of it.
func first(t *testing.T, serviceCIDR string) (*Server, kubernetes.Interface) {
	t.Helper()
	s, config := started(t, func(o *config.Options) { o.ServiceCIDR = serviceCIDR })
	return s, kubernetes.NewForConfigOrDie(config)
}

// started starts a server in a folder of its own, and returns what its administrator reaches it by, without a limit.
func started(t *testing.T, change func(*config.Options)) (*Server, *restclient.Config) {
	t.Helper()
	o := config.Defaults()
	o.DataDir, o.Listen, o.NoFsync = filepath.Join(t.TempDir(), "data"), []string{"127.0.0.1:0"}, true
	change(&o)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	running(t, s.Run)
	select {
	case <-s.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the server is not ready")
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return s, config
}

// running runs something until the test ends.
func running(t *testing.T, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with: %v", err)
		}
	})
}

// another is one more API server on the same database.
func another(t *testing.T, s *Server, open storages.ReservingOpener) kubernetes.Interface {
	t.Helper()
	return anotherOf(t, s, open, s.service)
}

// anotherOf is another that was started with a network of its own for Services.
func anotherOf(t *testing.T, s *Server, open storages.ReservingOpener, network *net.IPNet) kubernetes.Interface {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	api, err := apiserver.New(apiserver.Config{
		PKI: s.pki, Listener: l, AdvertiseAddress: net.IPv4(127, 0, 0, 1), AdvertisePort: l.Addr().(*net.TCPAddr).Port,
		OpenStorage: s.etcd.Open, OpenReserving: open, ServiceCIDR: network,
	})
	if err != nil {
		t.Fatal(err)
	}
	running(t, api.Run)
	client := kubernetes.NewForConfigOrDie(api.LoopbackConfig())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err == nil {
			return client
		}
		if time.Now().After(deadline) {
			t.Fatalf("the other server is not ready: %v", err)
		}
	}
}

func nodePortService(name string, nodePorts ...int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}}
	for i, p := range nodePorts {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1), NodePort: p})
	}
	return s
}

// atOnce calls f for each number below n, all together.
func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// checkUnique fails if two Services have one address or node port. It returns how many there are.
func checkUnique(t *testing.T, client kubernetes.Interface) int {
	t.Helper()
	list, err := client.CoreV1().Services("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owner := map[string]string{}
	for _, s := range list.Items {
		holds := map[string]bool{s.Spec.ClusterIP: s.Spec.ClusterIP != corev1.ClusterIPNone}
		for _, p := range s.Spec.Ports {
			holds[fmt.Sprint(p.NodePort)] = p.NodePort != 0
		}
		for what, held := range holds {
			if held && owner[what] != "" {
				t.Errorf("%s and %s both have %s", s.Name, owner[what], what)
			}
			if held {
				owner[what] = s.Name
			}
		}
	}
	return len(list.Items)
}

// unheld is a node port from the given one on that no Service has been given by chance.
func unheld(t *testing.T, client kubernetes.Interface, port int32) int32 {
	t.Helper()
	list, err := client.CoreV1().Services(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := map[int32]bool{}
	for _, s := range list.Items {
		for _, p := range s.Spec.Ports {
			held[p.NodePort] = true
		}
	}
	for held[port] {
		port++
	}
	return port
}

func TestTwoServersNeverGiveOutOneAddressTwice(t *testing.T) {
	t.Parallel()
	s, one := first(t, "10.96.0.0/24")
	clients := []kubernetes.Interface{one, another(t, s, s.etcd.OpenReserving)}
	services := func(i int) interface {
		Create(context.Context, *corev1.Service, metav1.CreateOptions) (*corev1.Service, error)
		Update(context.Context, *corev1.Service, metav1.UpdateOptions) (*corev1.Service, error)
		Apply(context.Context, *applycorev1.ServiceApplyConfiguration, metav1.ApplyOptions) (*corev1.Service, error)
		Delete(context.Context, string, metav1.DeleteOptions) error
	} {
		return clients[i%2].CoreV1().Services("default")
	}
	ctx := t.Context()
	const rounds, writers = 10, 6

	// Many want one node port, by creating, applying and updating: one gets it.
	for round := range rounds {
		atOnce(writers, func(i int) {
			if i%3 == 2 {
				if _, err := services(i).Create(ctx, nodePortService(fmt.Sprintf("u%d-%d", round, i), 0), metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
		port := unheld(t, one, int32(30100+round))
		var mu sync.Mutex
		won := 0
		atOnce(writers, func(i int) {
			var err error
			name := fmt.Sprintf("u%d-%d", round, i)
			switch i % 3 {
			case 0:
				_, err = services(i).Create(ctx, nodePortService(name, port), metav1.CreateOptions{})
			case 1:
				_, err = services(i).Apply(ctx, applycorev1.Service(name, "default").WithSpec(applycorev1.ServiceSpec().WithType(corev1.ServiceTypeNodePort).
					WithPorts(applycorev1.ServicePort().WithPort(1).WithNodePort(port))), metav1.ApplyOptions{FieldManager: "test"})
			default:
				_, err = services(i).Update(ctx, nodePortService(name, port), metav1.UpdateOptions{})
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
			case !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "provided port is already allocated"):
				t.Errorf("writer %d: %v", i, err)
			}
		})
		if won != 1 {
			t.Errorf("round %d: %d writers got port %d, want 1", round, won, port)
		}
	}

	// Many want any address and port, by creating and applying: each gets its own.
	atOnce(100, func(i int) {
		name := fmt.Sprintf("any-%d", i)
		var err error
		if i%4 < 2 {
			_, err = services(i).Create(ctx, nodePortService(name, 0, 0), metav1.CreateOptions{})
		} else {
			_, err = services(i).Apply(ctx, applycorev1.Service(name, "default").WithSpec(applycorev1.ServiceSpec().
				WithPorts(applycorev1.ServicePort().WithPort(1))), metav1.ApplyOptions{FieldManager: "test"})
		}
		if err != nil {
			t.Error(err)
		}
	})
	// A dry run takes nothing, though it says what would be.
	free := unheld(t, one, 32000)
	if _, err := services(0).Create(ctx, nodePortService("dry", free), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Error(err)
	}
	if _, err := services(1).Create(ctx, nodePortService("wet", free), metav1.CreateOptions{}); err != nil {
		t.Errorf("after a dry run: %v", err)
	}
	checkUnique(t, one)

	// After all are gone, everything can be had again, and no more.
	list, err := one.CoreV1().Services("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	atOnce(len(list.Items), func(i int) {
		if name := list.Items[i].Name; name != "kubernetes" {
			if err := services(i).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	exhaust(t, services(0), services(1))
	checkUnique(t, clients[1])
}

type creator interface {
	Create(context.Context, *corev1.Service, metav1.CreateOptions) (*corev1.Service, error)
}

// exhaust takes every node port and every address of a /24 with the two Services that
// each cluster has, and asks for one more.
func exhaust(t *testing.T, a, b creator) {
	t.Helper()
	ctx := t.Context()
	all := make([]int32, 32767-30000+1)
	if _, err := a.Create(ctx, nodePortService("all-ports", all...), metav1.CreateOptions{}); err != nil {
		t.Fatalf("take every node port: %v", err)
	}
	_, err := b.Create(ctx, nodePortService("one-more", 0), metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) || !strings.HasSuffix(err.Error(), "failed to allocate a nodePort: range is full") {
		t.Errorf("without a port left: %v", err)
	}
	const addresses, taken = 254, 3 // kubernetes, kube-dns, all-ports
	both := []creator{a, b}
	atOnce(addresses-taken, func(i int) {
		plain := nodePortService(fmt.Sprintf("plain-%d", i), 0)
		plain.Spec.Type = corev1.ServiceTypeClusterIP
		if _, err := both[i%2].Create(ctx, plain, metav1.CreateOptions{}); err != nil {
			t.Errorf("address %d: %v", i, err)
		}
	})
	plain := nodePortService("none-left", 0)
	plain.Spec.Type = corev1.ServiceTypeClusterIP
	_, err = b.Create(ctx, plain, metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) || !strings.HasSuffix(err.Error(), "failed to allocate a serviceIP: range is full") {
		t.Errorf("without an address left: %v", err)
	}
}

// forgetful is the storage of a version that did not write down what Services hold.
type forgetful struct{ *apistorage.Reserving }

func (forgetful) Holders(context.Context, ...string) (map[string]string, error) {
	return map[string]string{}, nil
}
func (forgetful) AllHolders(context.Context, string) (map[string]string, error) {
	return map[string]string{}, nil
}
func (forgetful) Repair(context.Context, func([]runtime.Object, map[string]string) (map[string]runtime.Object, []string)) error {
	return nil
}

func TestServicesOfOlderDataKeepWhatTheyHave(t *testing.T) {
	t.Parallel()
	s, _ := first(t, "10.96.0.0/24")
	old := another(t, s, func(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, prefix string,
		_ func(runtime.Object) (string, []string)) (storage.Interface, error) {
		opened, err := s.etcd.OpenReserving(c, newObject, newList, prefix, func(runtime.Object) (string, []string) { return "", nil })
		if err != nil {
			return nil, err
		}
		return forgetful{opened.(*apistorage.Reserving)}, nil
	})
	ctx := t.Context()
	made := map[string]*corev1.Service{}
	for _, name := range []string{"a", "twin-1", "twin-2"} {
		svc := nodePortService(name, 31000)
		if name == "a" {
			svc.Spec.Ports[0].NodePort = 31001
		}
		var err error
		made[name], err = old.CoreV1().Services("default").Create(ctx, svc, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	client := another(t, s, s.etcd.OpenReserving)
	if _, err := client.CoreV1().Services("default").Create(ctx, nodePortService("b", 31001), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("the node port of an older Service: got %v, want that it is refused", err)
	}
	svc := nodePortService("b", 0)
	svc.Spec.ClusterIP = made["a"].Spec.ClusterIP
	if _, err := client.CoreV1().Services("default").Create(ctx, svc, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("the address of an older Service: got %v, want that it is refused", err)
	}
	// Of two that had one port already, the younger is told.
	eventually(t, "an event says that a port is there twice", func(ctx context.Context) error {
		events, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=PortAlreadyAllocated"})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	// When that one goes, the port stays the other's; after both it is free.
	for _, name := range []string{"twin-2", "twin-1"} {
		if err := client.CoreV1().Services("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		_, err := client.CoreV1().Services("default").Create(ctx, nodePortService("c", 31000), metav1.CreateOptions{})
		if (err == nil) != (name == "twin-1") {
			t.Errorf("after %s has gone: %v", name, err)
		}
	}
}
