package added

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

// asks makes a webhook for the ConfigMaps of the namespace default, until the end of the test.
func (c *cluster) asks(t *testing.T, name string, of admissionregistrationv1.WebhookClientConfig) {
	t.Helper()
	fail, none, all := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.AllScopes
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: name + ".example.com", FailurePolicy: &fail, SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, TimeoutSeconds: ptr.To(int32(10)), ClientConfig: of,
		Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}, Scope: &all}}},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"asked": name}},
	}}}
	if _, err := c.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), config, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// refused makes ConfigMaps until the webhook of that name is asked about one, and returns
// what the client is told.
func (c *cluster) refused(t *testing.T, name string) (words string) {
	t.Helper()
	c.Eventually("a ConfigMap is refused", func(ctx context.Context) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-", Labels: map[string]string{"asked": name}}}
		_, err := c.Client.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{DryRun: []string{"All"}})
		if err == nil {
			return errors.New("it is taken")
		}
		words = err.Error()
		return nil
	})
	return words
}

// itself names the API server as a webhook. It would call itself, with all rights.
func (c *cluster) itself(t *testing.T) {
	var reached atomic.Int32
	c.pod("victim", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	for i, path := range []string{
		"/everynode/v1/servers/self/leave", "/everynode/v1/encryption/rewrite", "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/daemonsets",
	} {
		name := fmt.Sprintf("self-%d", i)
		c.asks(t, name, admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "kubernetes", Path: &path}})
		// Here the server has no address but the loopback's, so that no endpoint is good.
		if words := c.refused(t, name); !strings.Contains(words, "the API server itself is no webhook at "+path) && !strings.Contains(words, "no endpoints available") {
			t.Errorf("%s: %s", path, words)
		}
		name += "-url"
		url := "https://kubernetes.default.svc:443" + path
		c.asks(t, name, admissionregistrationv1.WebhookClientConfig{URL: &url})
		if words := c.refused(t, name); !strings.Contains(words, "the API server itself is no webhook at "+path) {
			t.Errorf("%s: %s", url, words)
		}
	}
	proxied := "https://kubernetes.default.svc/api/v1/namespaces/default/services/https:victim:443/proxy/steal"
	c.asks(t, "proxied", admissionregistrationv1.WebhookClientConfig{URL: &proxied})
	if words := c.refused(t, "proxied"); !strings.Contains(words, "the API server itself is no webhook at ") {
		t.Errorf("%s: %s", proxied, words)
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("a pod was called %d times by the API server, with all rights", n)
	}

	// That is what it is for: a webhook of an APIService.
	mux := http.NewServeMux()
	mux.Handle("/apis/hooks.example.com/v1", resources("hooks.example.com/v1", resource("reviews", "Review")))
	mux.HandleFunc("/apis/hooks.example.com/v1/reviews", func(w http.ResponseWriter, r *http.Request) {
		review := admissionv1.AdmissionReview{}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &review)
		}
		if err != nil || review.Request == nil {
			answer(w, map[string]any{"kind": "ReviewList", "apiVersion": "hooks.example.com/v1", "metadata": map[string]any{}, "items": []any{}})
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "said by the APIService"}}
		answer(w, review)
	})
	c.pod("hooks", mux)
	c.add(t, c.apiService("hooks.example.com", "v1", "hooks"))
	c.available("v1.hooks.example.com")
	url := "https://kubernetes.default.svc/apis/hooks.example.com/v1/reviews"
	c.asks(t, "through-us", admissionregistrationv1.WebhookClientConfig{URL: &url})
	if words := c.refused(t, "through-us"); !strings.Contains(words, "said by the APIService") {
		t.Errorf("a webhook of an APIService: %s", words)
	}
}

// endless is a webhook that sends as much as it can.
func (c *cluster) endless(t *testing.T) {
	var sent atomic.Int64
	c.pod("endless", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		part := []byte(`{"x":"` + strings.Repeat("x", 1<<20))
		for {
			n, err := w.Write(part)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	c.asks(t, "endless", admissionregistrationv1.WebhookClientConfig{CABundle: c.keys.CAPEM(), Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "endless"}})
	if words := c.refused(t, "endless"); !strings.Contains(words, "the answer has more than") {
		t.Error(words)
	}
	if n := sent.Load(); n > 200<<20 {
		t.Errorf("%d bytes were taken", n)
	}
}

// home is a Service whose external name is the machine of the API server.
func (c *cluster) home(t *testing.T) {
	ctx := t.Context()
	for name, to := range map[string]string{"loop": "localhost", "loop-ip": "127.0.0.1", "cloud": "169.254.169.254"} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: to}}
		if _, err := c.Client.CoreV1().Services("default").Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.asks(t, name, admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: name}})
		if words := c.refused(t, name); !strings.Contains(words, "address not allowed") {
			t.Errorf("%s: %s", name, words)
		}
		service := c.apiService(name+".example.com", "v1", name)
		service.Spec.CABundle, service.Spec.InsecureSkipTLSVerify = nil, true
		c.add(t, service)
		c.Eventually("the APIService says so", func(ctx context.Context) error {
			now, err := c.services.Get(ctx, service.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, x := range now.Status.Conditions {
				if x.Type == apiregistrationv1.Available && x.Status == apiregistrationv1.ConditionFalse && strings.Contains(x.Message, "address not allowed") {
					return nil
				}
			}
			return fmt.Errorf("its conditions are %v", now.Status.Conditions)
		})
	}
}

// takingOver would have another server answer for the server's own groups.
func (c *cluster) takingOver(t *testing.T) {
	c.pod("evil", http.NotFoundHandler())
	for _, group := range []struct{ group, version string }{
		{"", "v1"}, {"apps", "v1"}, {"apps", "v2"}, {"everynode.io", "v1alpha1"}, {"everynode.io", "v9"}, {"rbac.authorization.k8s.io", "v1"}, {"apiregistration.k8s.io", "v1"}, {"apiextensions.k8s.io", "v1"}, {"network.everynode.io", "v1alpha1"},
	} {
		s := c.apiService(group.group, group.version, "evil")
		if _, err := c.services.Create(t.Context(), s, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "served by the server itself") && !strings.Contains(err.Error(), "already exists") {
			t.Errorf("%s: %v", s.Name, err)
		}
		now, err := c.services.Get(t.Context(), s.Name, metav1.GetOptions{})
		if err != nil {
			continue
		}
		now.Spec, now.Labels = s.Spec, nil
		if _, err := c.services.Update(t.Context(), now, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "served by the server itself") {
			t.Errorf("%s is changed: %v", s.Name, err)
		}
	}
	if _, err := c.Client.AppsV1().DaemonSets("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}
