package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"
)

// others is an API server of others, in a pod: it takes nobody but the aggregator, which
// it knows by the config map, and says to whom it speaks. It also converts widgets.
func others(t *testing.T, s *Server, client kubernetes.Interface) *httptest.Server {
	t.Helper()
	known, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(known.Data["requestheader-client-ca-file"])) || known.Data["requestheader-allowed-names"] != `["front-proxy-client"]` {
		t.Fatalf("the config map is %v", known.Data)
	}
	mux := http.NewServeMux()
	resources := func(version string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			answer(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version,
				APIResources: []metav1.APIResource{{Name: "flavors", SingularName: "flavor", Namespaced: true, Kind: "Flavor", Verbs: metav1.Verbs{"get", "list", "delete", "deletecollection"}}}})
		}
	}
	mux.Handle("/apis/flavors.example.com/v1", resources("flavors.example.com/v1"))
	mux.Handle("/apis/metrics.k8s.io/v1beta1", resources("metrics.k8s.io/v1beta1"))
	mux.HandleFunc("/apis/flavors.example.com/v1/", func(w http.ResponseWriter, r *http.Request) {
		if peer := r.TLS.PeerCertificates; len(peer) == 0 || peer[0].Subject.CommonName != "front-proxy-client" {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		answer(w, map[string]any{"kind": "FlavorList", "apiVersion": "flavors.example.com/v1", "metadata": map[string]any{}, "items": []any{},
			"asked": r.Header.Get("X-Remote-User") + " of " + strings.Join(r.Header.Values("X-Remote-Group"), ",")})
	})
	mux.HandleFunc("/convert", func(w http.ResponseWriter, r *http.Request) { convert(t, w, r) })
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{serving(t, s.pki.Signer(), "others", "others.default.svc")}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// convert is a conversion webhook: v1 has spec.size, v2 spec.length.
func convert(t *testing.T, w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &review)
	}
	if err != nil {
		t.Error(err)
		return
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		text := strings.ReplaceAll(string(raw.Raw), `"size"`, `"length"`)
		if review.Request.DesiredAPIVersion == "example.com/v1" {
			text = strings.ReplaceAll(string(raw.Raw), `"length"`, `"size"`)
		}
		object := map[string]any{}
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Error(err)
			return
		}
		object["apiVersion"] = review.Request.DesiredAPIVersion
		converted, _ := json.Marshal(object)
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Raw: converted})
	}
	answer(w, review)
}

// serviceOnNode makes a Service without endpoints, and the node whose agent leads to its pods.
func serviceOnNode(t *testing.T, client kubernetes.Interface, name string, agent net.Addr) {
	t.Helper()
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A patch, since control loops write to a new node as well.
	status := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`,
		agent.(*net.TCPAddr).Port)
	if _, err := client.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}}
	if _, err := client.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// serviceInPod makes a Service of one pod at an address that only its node's agent leads to.
func serviceInPod(t *testing.T, client kubernetes.Interface, name string, agent net.Addr) {
	t.Helper()
	serviceOnNode(t, client, name, agent)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(8443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.77.1.2"}, NodeName: ptr.To("n1"), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	if _, err := client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func apiService(s *Server, group, version string) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: version + "." + group}, Spec: apiregistrationv1.APIServiceSpec{
		Group: group, Version: version, GroupPriorityMinimum: 2000, VersionPriority: 20, CABundle: s.pki.CAPEM(),
		Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "others", Port: ptr.To(int32(443))},
	}}
}

func TestServersOfOthers(t *testing.T) {
	t.Parallel()
	s, client := first(t, "10.96.0.0/24")
	ctx := t.Context()
	var used atomic.Int32
	server := others(t, s, client)
	serviceInPod(t, client, "others", tunnels(t, s.pki, server.Listener.Addr().String(), &used))
	api := aggregatorclient.NewForConfigOrDie(s.ClientConfig()).ApiregistrationV1().APIServices()
	get := func(path string) (string, error) {
		body, err := client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
		return string(body), err
	}
	has := func(path, words string) {
		t.Helper()
		eventually(t, path+" says "+words, func(context.Context) error {
			if got, err := get(path); err != nil || !strings.Contains(got, words) {
				return fmt.Errorf("it says %s, %w", got, err)
			}
			return nil
		})
	}
	if _, err := api.Create(ctx, apiService(s, "flavors.example.com", "v1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	has("/apis/flavors.example.com/v1/namespaces/default/flavors", `"asked":"`)
	has("/apis", `"flavors.example.com"`)
	got, err := get("/apis/flavors.example.com/v1/namespaces/default/flavors")
	if err != nil || !strings.Contains(got, "system:masters") || used.Load() == 0 {
		t.Errorf("it is told that %s asks (%v), through the agent %d times", got, err, used.Load())
	}

	// What the server says of metrics is somebody else's word now, and then its own again.
	has("/apis/metrics.k8s.io/v1beta1", "PodMetrics")
	if _, err := api.Create(ctx, apiService(s, "metrics.k8s.io", "v1beta1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	has("/apis/metrics.k8s.io/v1beta1", "Flavor")
	if err := api.Delete(ctx, "v1beta1.metrics.k8s.io", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	has("/apis/metrics.k8s.io/v1beta1", "PodMetrics")
	has("/apis", `"metrics.k8s.io"`)
	has("/apis/metrics.k8s.io/", "v1beta1") // as some clients ask

	// While it does not answer, nobody knows what it holds of a namespace.
	server.Close()
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "unsure"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	has("/apis/apiregistration.k8s.io/v1/apiservices/v1.flavors.example.com", "FailedDiscoveryCheck")
	if err := client.CoreV1().Namespaces().Delete(ctx, "unsure", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	has("/api/v1/namespaces/unsure", "flavors.example.com")
	if err := api.Delete(ctx, "v1.flavors.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace goes with the server", func(ctx context.Context) error {
		if _, err := client.CoreV1().Namespaces().Get(ctx, "unsure", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}

func TestConversionThatIsAService(t *testing.T) {
	t.Parallel()
	s, client := first(t, "10.96.0.0/24")
	ctx := t.Context()
	var used atomic.Int32
	serviceInPod(t, client, "others", tunnels(t, s.pki, others(t, s, client).Listener.Addr().String(), &used))
	version := func(name, field string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Served: true, Storage: storage, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{field: {Type: "integer"}}}}}}}
	}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", "size", true), version("v2", "length", false)},
		Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{CABundle: s.pki.CAPEM(),
				Service: &apiextensionsv1.ServiceReference{Namespace: "default", Name: "others", Path: ptr.To("/convert")}}}},
	}}
	if _, err := crdclient.NewForConfigOrDie(s.ClientConfig()).ApiextensionsV1().CustomResourceDefinitions().Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	objects := dynamic.NewForConfigOrDie(s.ClientConfig())
	widgets := func(version string) dynamic.ResourceInterface {
		return objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "widgets"}).Namespace("default")
	}
	made := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}, "spec": map[string]any{"size": int64(7)}}}
	eventually(t, "a widget can be made", func(ctx context.Context) error {
		_, err := widgets("v1").Create(ctx, made, metav1.CreateOptions{})
		return err
	})
	eventually(t, "it is converted", func(ctx context.Context) error {
		got, err := widgets("v2").List(ctx, metav1.ListOptions{})
		if err != nil || len(got.Items) != 1 || fmt.Sprint(got.Items[0].Object["spec"]) != "map[length:7]" {
			return fmt.Errorf("got %v, %w", got, err)
		}
		return nil
	})
	if used.Load() == 0 {
		t.Error("the agent was not asked for a connection")
	}
}
