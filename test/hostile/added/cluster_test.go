package added

import (
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
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiserviceclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/node/tunnel"
	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/testenv"
)

// cluster is a control plane with one node, whose pods are the servers of this test.
type cluster struct {
	*testenv.Env
	t        *testing.T
	keys     *pki.Bundle
	crds     crdclient.Interface
	dynamic  dynamic.Interface
	services apiserviceclient.APIServiceInterface

	mu   sync.Mutex
	pods map[string]string // what listens, by the address of the pod
}

func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{Env: testenv.Start(t), t: t, pods: map[string]string{}}
	var err error
	c.keys, err = pki.LoadOrCreate(filepath.Join(c.DataDir(), "pki"), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.connect()
	agent := httptest.NewUnstartedServer(http.HandlerFunc(c.tunnel))
	agent.TLS = &tls.Config{
		Certificates: []tls.Certificate{c.certificate(c.keys.NodeSigner(), "system:node:n1", "n1")},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: c.keys.CAPool(),
	}
	agent.StartTLS()
	t.Cleanup(agent.Close)
	if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	status := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, agent.Listener.Addr().(*net.TCPAddr).Port)
	if _, err := c.Client.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) connect() {
	c.crds, c.dynamic = crdclient.NewForConfigOrDie(c.Config), dynamic.NewForConfigOrDie(c.Config)
	c.services = aggregatorclient.NewForConfigOrDie(c.Config).ApiregistrationV1().APIServices()
}

// certificate is one for a server with the names.
func (c *cluster) certificate(signer *pki.Signer, commonName string, names ...string) tls.Certificate {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	signed, err := signer.Sign(&key.PublicKey, pki.Template{
		CommonName: commonName, DNSNames: names, TTL: time.Hour,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	block, _ := pem.Decode(signed)
	return tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
}

// tunnel is the agent: it leads to the pods that it has.
func (c *cluster) tunnel(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	c.mu.Lock()
	to := c.pods[parts[2]]
	c.mu.Unlock()
	back, err := net.Dial("tcp", to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		back.Close()
		return
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+tunnel.Protocol+"\r\n\r\n")
	go func() { defer back.Close(); _, _ = io.Copy(back, conn) }()
	go func() { defer conn.Close(); _, _ = io.Copy(conn, back) }()
}

// pod runs a server in a pod, behind the Service of that name.
func (c *cluster) pod(name string, handler http.Handler) *httptest.Server {
	c.t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{c.certificate(c.keys.Signer(), name, name, name+".default.svc")}, ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	c.t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	c.mu.Lock()
	address := fmt.Sprintf("10.77.1.%d", len(c.pods)+2)
	c.pods[address] = server.Listener.Addr().String()
	c.mu.Unlock()
	c.service(name, address)
	return server
}

// service leads to an address in a pod of the node.
func (c *cluster) service(name, address string) {
	c.t.Helper()
	ctx := c.t.Context()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "https", Port: 443}}}}
	if _, err := c.Client.CoreV1().Services("default").Create(ctx, service, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(8443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, NodeName: ptr.To("n1"), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	if _, err := c.Client.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// apiService says that a Service serves a group.
func (c *cluster) apiService(group, version, service string) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: version + "." + group}, Spec: apiregistrationv1.APIServiceSpec{
		Group: group, Version: version, GroupPriorityMinimum: 2000, VersionPriority: 20, CABundle: c.keys.CAPEM(),
		Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: service, Port: ptr.To(int32(443))},
	}}
}

// add makes an APIService until the end of the test.
func (c *cluster) add(t *testing.T, s *apiregistrationv1.APIService) {
	t.Helper()
	if _, err := c.services.Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.services.Delete(context.WithoutCancel(t.Context()), s.Name, metav1.DeleteOptions{}) })
}

// available waits until an APIService is.
func (c *cluster) available(name string) {
	c.t.Helper()
	c.Eventually(name+" is available", func(ctx context.Context) error {
		s, err := c.services.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, x := range s.Status.Conditions {
			if x.Type == apiregistrationv1.Available && x.Status == apiregistrationv1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", s.Status.Conditions)
	})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// resources is the discovery of a version, for those who ask about it alone.
func resources(version string, all ...metav1.APIResource) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		answer(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version, APIResources: all})
	}
}

func resource(name, kind string) metav1.APIResource {
	return metav1.APIResource{Name: name, SingularName: strings.ToLower(kind), Namespaced: true, Kind: kind, Verbs: metav1.Verbs{"get", "list", "watch", "patch", "delete", "deletecollection"}}
}

func tokenRequest() *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(600))}}
}

// allow lets the default account do everything with a resource.
func (c *cluster) allow(group, resource string) {
	c.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: resource + "." + group}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{group}, Resources: []string{resource}}}}
	if _, err := c.Client.RbacV1().ClusterRoles().Create(c.t.Context(), role, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "default"}}}
	if _, err := c.Client.RbacV1().ClusterRoleBindings().Create(c.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:default:default",
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: group, Resource: resource}}}
	c.Eventually("the right is known", func(ctx context.Context) error {
		got, err := c.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && !got.Status.Allowed {
			err = fmt.Errorf("the answer is %v", got.Status)
		}
		return err
	})
}
