package beside

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/certs"
	"github.com/everynode/everynode/internal/beside/opening"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/testenv/eventually"
)

// answered is how often the webhook has answered so about pods.
func answered(answer string, times int) string {
	return fmt.Sprintf("everynode_beside_answers_total{about=%q,answer=%q} %d\n", "pod", answer, times)
}

// TestManyPodsAtOnceAreKnown: however many pods the API server asks about at a time, and however little the controller
// may ask of the API for itself, each is told what it is to be. And whoever leads the API server here is told when.
func TestManyPodsAtOnceAreKnown(t *testing.T) {
	const pods = 100
	meta := metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "1",
		Annotations: map[string]string{admit.UpdateStrategy: `{"type":"RollingUpdate"}`}}
	set := &appsv1.DaemonSet{ObjectMeta: meta}
	set.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	rollout := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent",
		Labels: map[string]string{rollouts.OwnerLabel: "1"}}}
	rollout.Status.StableRevision, rollout.Status.TargetRevision = "old", "old"
	owner := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "1",
		Controller: ptr.To(true)}}
	labels := map[string]string{appsv1.ControllerRevisionHashLabelKey: "old"}
	revision := appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent-old", UID: "2",
		Labels: labels, OwnerReferences: owner}, Data: runtime.RawExtension{Raw: []byte(`{"spec":{"template":{"spec":{}}}}`)}}
	config := serves(t, map[string]any{
		"/version": version.Info{GitVersion: "v1.36.3"}, opening.Definition: metav1.Status{},
		"/apis/everynode.io/v1alpha1":                       metav1.APIResourceList{GroupVersion: "everynode.io/v1alpha1"},
		"/apis/authentication.k8s.io/v1/selfsubjectreviews": authenticationv1.SelfSubjectReview{},
		"/apis/apps/v1/namespaces/default/daemonsets/agent": set,
		"/apis/apps/v1/namespaces/default/controllerrevisions": appsv1.ControllerRevisionList{
			Items: []appsv1.ControllerRevision{revision}},
		"/apis/everynode.io/v1alpha1/namespaces/default/daemonsetrollouts/agent": rollout,
	})
	config.QPS, config.Burst = 1, 10
	metrics := prometheus.NewRegistry()
	g, err := New(t.Context(), Config{API: config, Registerer: metrics, Options: Options{Listen: "127.0.0.1:0",
		URL: "https://127.0.0.1"}})
	if err != nil {
		t.Fatal(err)
	}
	if g.Answers() {
		t.Error("it answers, and has no certificate yet")
	}
	client, end := answers(t, g)

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels, OwnerReferences: owner}}
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: "x",
		Namespace: "default", Object: runtime.RawExtension{Raw: raw}}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range pods {
		all.Go(func() {
			response, err := client.Post("https://"+g.listen.Addr().String()+"/pods", "application/json", bytes.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
		})
	}
	all.Wait()
	const name = "everynode_beside_answers_total"
	none := answered("other account", 0)
	for _, about := range []string{"daemonset", "node", "placement", "pod"} {
		for _, answer := range []string{"not understood", "unknown"} {
			none += fmt.Sprintf("%s{about=%q,answer=%q} 0\n", name, about, answer)
		}
	}
	err = testutil.GatherAndCompare(metrics, strings.NewReader("# HELP "+name+" "+
		"Answers to the API server, by what was asked about (pod, daemonset, placement, node) and what was answered. "+
		"`unknown` means that what is needed could not be read, `other account` that the pod was made by another account "+
		"than --daemonset-account says.\n# TYPE "+name+" counter\n"+none+answered("as made", pods)), name)
	if err != nil {
		t.Error(err)
	}
	end()
	if g.Answers() {
		t.Error("it has ended, and answers")
	}
}

// answers has the guest answer until the test ends, or what is returned is called, and returns a client that trusts it.
func answers(t *testing.T, g *Guest) (client *http.Client, end func()) {
	t.Helper()
	held, err := certs.Renew(nil, []string{"127.0.0.1"}, time.Now(), rand.Reader)
	if err == nil {
		err = g.serveWith(held)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- g.webhook.Serve(ctx, g.listen) }()
	eventually.Nil(t, 10*time.Second, "it answers", func(context.Context) error {
		if !g.Answers() {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certs.Trusted(held))
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
	return &http.Client{Transport: transport}, func() {
		t.Helper()
		transport.CloseIdleConnections()
		cancel()
		err := <-done
		if err != nil {
			t.Error(err)
		}
	}
}

// serves is an API server that has a few objects, by their paths.
func serves(t *testing.T, objects map[string]any) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		obj, is := objects[r.URL.Path]
		if !is {
			w.WriteHeader(http.StatusNotFound)
		}
		_ = json.NewEncoder(w).Encode(obj) // whoever asked may have gone
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}
