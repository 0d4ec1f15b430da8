package server

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/server/config"
)

// TestFloodHoldsUpNobodyElse: an account that has all seats of its level, and many requests in its queues, holds up no
// node; and another account of the same level gets its answer as soon as seats become free, though the flood goes on.
func TestFloodHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	_, config := started(t, func(o *config.Options) {
		o.API.Run.MaxRequestsInFlight, o.API.Run.MaxMutatingRequestsInFlight = 10, 10
	})
	client := kubernetes.NewForConfigOrDie(config)
	settled(t, client)
	hook := newGate(t, client)
	const flood = 60
	greedy, modest := accountOf(t, client, config, "greedy"), accountOf(t, client, config, "modest")
	stop := flooded(greedy, flood)
	all := func(requests int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d requests have a seat or wait for one", requests), func(ctx context.Context) error {
			metrics, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
			if err != nil {
				return err
			}
			held, waiting := hook.held.Load(), waitingIn(string(metrics), "service-accounts")
			if held == 0 || waiting < flood/2 || int(held)+waiting != requests {
				return fmt.Errorf("%d are held, and %d wait", held, waiting)
			}
			return nil
		})
	}
	all(flood)

	// Nodes and control loops have seats of their own.
	node := as(t, config, "system:node:n1", "system:nodes", "system:authenticated")
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := node.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err != nil {
		t.Errorf("a node reads itself: %v", err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1", Namespace: corev1.NamespaceNodeLease}}
	if _, err := node.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(t.Context(), lease,
		metav1.CreateOptions{}); err != nil {
		t.Errorf("a node says that it lives: %v", err)
	}

	answered := make(chan error, 1)
	go func() {
		_, err := modest.CoreV1().ConfigMaps("modest").List(context.Background(), metav1.ListOptions{})
		answered <- err
	}()
	all(flood + 1)
	// The flood goes on: whoever gets an answer asks again at once.
	hook.open()
	select {
	case err := <-answered:
		if err != nil {
			t.Errorf("the other account: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the other account gets no answer")
	}
	if err := stop(); err != nil {
		t.Errorf("the flood itself: %v", err)
	}
}

// gate is a webhook that holds what it is asked about until it is opened.
type gate struct {
	held atomic.Int32
	let  chan struct{}
	once sync.Once
}

func (g *gate) open() { g.once.Do(func() { close(g.let) }) }

// newGate has the gate asked about new Secrets of the account that floods.
func newGate(t *testing.T, client kubernetes.Interface) *gate {
	t.Helper()
	g := &gate{let: make(chan struct{})}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		err := json.NewDecoder(r.Body).Decode(&review)
		if err != nil {
			t.Error(err)
			return
		}
		g.held.Add(1)
		<-g.let
		g.held.Add(-1)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		answer(w, review)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(g.open)
	url, none := server.URL, admissionregistrationv1.SideEffectClassNone
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "gate"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "gate.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none,
			TimeoutSeconds:    ptr.To[int32](30),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "greedy"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"secrets"}},
			}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
		}},
	}
	_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), config,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// flooded has so many creations of Secrets under way at all times, until the function that it returns is called.
func flooded(client kubernetes.Interface, n int) (stop func() error) {
	var over atomic.Bool
	errs := make(chan error, n)
	for i := range n {
		go func() {
			var err error
			for turn := 0; err == nil && !over.Load(); turn++ {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("flood-%d-%d", i, turn)}}
				_, err = client.CoreV1().Secrets("greedy").Create(context.Background(), secret, metav1.CreateOptions{})
			}
			errs <- err
		}()
	}
	return func() error {
		over.Store(true)
		var all []error
		for range n {
			all = append(all, <-errs)
		}
		return errors.Join(all...)
	}
}

// accountOf makes a namespace with an account that may edit it, and returns the account's client.
func accountOf(t *testing.T, client kubernetes.Interface, config *restclient.Config, name string) kubernetes.Interface {
	t.Helper()
	ctx := t.Context()
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "edit"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName,
			Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: name, Name: "default"}},
	}
	_, err = client.RbacV1().RoleBindings(name).Create(ctx, binding, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := as(t, config, "system:serviceaccount:"+name+":default", "system:serviceaccounts",
		"system:serviceaccounts:"+name, "system:authenticated")
	eventually(t, name+" may edit", func(ctx context.Context) error {
		_, err := out.CoreV1().ConfigMaps(name).List(ctx, metav1.ListOptions{})
		return err
	})
	return out
}

// as is the client of somebody else.
func as(t *testing.T, config *restclient.Config, name string, groups ...string) kubernetes.Interface {
	t.Helper()
	other := restclient.CopyConfig(config)
	other.Impersonate = restclient.ImpersonationConfig{UserName: name, Groups: groups}
	return kubernetes.NewForConfigOrDie(other)
}

// waitingIn is how many requests of a flow schema wait, by the server's metrics.
func waitingIn(metrics, schema string) (out int) {
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, "apiserver_flowcontrol_current_inqueue_requests{") ||
			!strings.Contains(line, `flow_schema="`+schema+`"`) {
			continue
		}
		_, value, _ := strings.Cut(line, "} ")
		n := 0
		_, err := fmt.Sscan(value, &n)
		if err == nil {
			out += n
		}
	}
	return out
}
