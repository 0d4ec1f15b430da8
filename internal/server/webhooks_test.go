package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/node/tunnel"
	"github.com/everynode/everynode/internal/pki"
)

// serving makes a certificate for a server with the names.
func serving(t *testing.T, signer *pki.Signer, commonName string, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(&key.PublicKey, pki.Template{
		CommonName: commonName, DNSNames: names, TTL: time.Hour,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(signed)
	return tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
}

// hook is a webhook that refuses whatever is labelled so. The API server has no way to its address, 10.77.1.2, but
// through the agent of the node.
func hook(t *testing.T, bundle *pki.Bundle) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		review := admissionv1.AdmissionReview{}
		if err == nil {
			err = json.Unmarshal(body, &review)
		}
		if err != nil {
			t.Error(err)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: !bytes.Contains(review.Request.Object.Raw, []byte(`"refuse":"me"`))}
		review.Response.Result = &metav1.Status{Message: "not with this label"}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{serving(t, bundle.Signer(), "hook", "hook.default.svc")}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// tunnels is the agent of the node n1, which leads to the webhook when it is asked for its address.
func tunnels(t *testing.T, bundle *pki.Bundle, to string, used *atomic.Int32) net.Addr {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc(tunnel.Path, func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("address") != "10.77.1.2" || r.PathValue("port") != "8443" {
			http.NotFound(w, r)
			return
		}
		used.Add(1)
		back, err := net.Dial("tcp", to)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+tunnel.Protocol+"\r\n\r\n")
		go func() { defer back.Close(); _, _ = io.Copy(back, conn) }()
		go func() { defer conn.Close(); _, _ = io.Copy(conn, back) }()
	})
	agent := httptest.NewUnstartedServer(mux)
	agent.TLS = &tls.Config{
		Certificates: []tls.Certificate{serving(t, bundle.NodeSigner(), "system:node:n1", "n1")},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: bundle.CAPool(),
	}
	agent.StartTLS()
	t.Cleanup(agent.Close)
	return agent.Listener.Addr()
}

func TestWebhooksThatAreServices(t *testing.T) {
	t.Parallel()
	s, client := first(t, "10.96.0.0/24")
	ctx := t.Context()
	var used atomic.Int32
	agent := tunnels(t, s.pki, hook(t, s.pki).Listener.Addr().String(), &used)
	serviceOnNode(t, client, "hook", agent)
	fail, none, all := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.AllScopes
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "hook"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "hook.example.com", FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To(int32(2)),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: s.pki.CAPEM(), Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "hook", Path: ptr.To("/check")}},
		Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: &all}}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "default"}},
	}}}
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	try := func(labels map[string]string) error {
		_, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Labels: labels}}, metav1.CreateOptions{})
		return err
	}
	expect := func(what, words string, labels map[string]string) {
		t.Helper()
		eventually(t, what, func(context.Context) error {
			begin := time.Now()
			err := try(labels)
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("%s: it took %v", what, took)
			}
			if err == nil && words == "" || err != nil && words != "" && strings.Contains(err.Error(), words) {
				return nil
			}
			if err == nil {
				return io.ErrUnexpectedEOF // The configuration is not known yet.
			}
			return err
		})
	}
	const failed = `Internal error occurred: failed calling webhook "hook.example.com": failed to call webhook: Post "https://hook.default.svc:443/check?timeout=2s": `
	expect("a Service without endpoints", failed+`no endpoints available for service "hook"`, nil)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "hook-1", Labels: map[string]string{discoveryv1.LabelServiceName: "hook"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(8443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.77.1.3"}, NodeName: ptr.To("n1")}},
	}
	made, err := client.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect("an endpoint that is no pod of the node", "dial tcp 10.77.1.3:8443 through the agent of node n1: 404 Not Found", nil)
	made.Endpoints[0].Addresses = []string{"10.77.1.2"}
	if _, err := client.DiscoveryV1().EndpointSlices("default").Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("the webhook says yes", "", nil)
	expect("the webhook says no", `admission webhook "hook.example.com" denied the request: not with this label`, map[string]string{"refuse": "me"})
	if used.Load() == 0 {
		t.Error("the webhook was not reached through the agent")
	}
}

// TestInsideDoorCallsWebhooks has a webhook that changes pods appear while control loops write: from then on it changes theirs as it
// does those of requests, and once it is gone nothing is changed any more.
func TestInsideDoorCallsWebhooks(t *testing.T) {
	t.Parallel()
	client, http, door := ways(t)
	ctx := t.Context()
	server := httptest.NewTLSServer(labels(t))
	t.Cleanup(server.Close)
	fail, none := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone
	hooks := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "labels"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
		Name: "labels.example.com", FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		},
		Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}}},
	}}}
	n := 0
	changed := func(w way) bool {
		n++
		made, err := w.ds.CreatePod(ctx, testPod(w.namespace, fmt.Sprintf("p-%d", n)))
		if err != nil {
			t.Fatal(err)
		}
		return made.Labels["webhook"] == "was-here"
	}
	both := func(what string, want bool) {
		t.Helper()
		for _, w := range []way{http, door} {
			eventually(t, w.namespace+" "+what, func(context.Context) error {
				if changed(w) != want {
					return fmt.Errorf("the webhook's label is there: %v", !want)
				}
				return nil
			})
		}
	}
	both("before there is a webhook", false)
	if _, err := hooks.Create(ctx, config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	both("with a webhook", true)
	if err := hooks.Delete(ctx, config.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	both("after the webhook has gone", false)
}

// labels is a webhook that labels what it is asked about.
func labels(t *testing.T) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, PatchType: ptr.To(admissionv1.PatchTypeJSONPatch),
			Patch: []byte(`[{"op": "add", "path": "/metadata/labels", "value": {"webhook": "was-here"}}]`),
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	})
}
