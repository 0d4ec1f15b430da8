package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/pki"
	"github.com/everynode/everynode/internal/testenv"
)

// keysOf are the keys of a running control plane.
func keysOf(t *testing.T, env *testenv.Env) *pki.Bundle {
	t.Helper()
	bundle, err := pki.LoadOrCreate(filepath.Join(env.DataDir(), "pki"), servingNames(t, env))
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// servingNames keeps the API server's certificate as it is.
func servingNames(t *testing.T, env *testenv.Env) pki.Options {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(env.DataDir(), "pki", "apiserver.crt"), filepath.Join(env.DataDir(), "pki", "apiserver.key"))
	if err != nil {
		t.Fatal(err)
	}
	return pki.Options{ServerNames: pair.Leaf.DNSNames, ServerIPs: pair.Leaf.IPAddresses}
}

// clientWith reaches the API with a client certificate.
func clientWith(t *testing.T, env *testenv.Env, certPEM, keyPEM []byte) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&restclient.Config{Host: env.Config.Host, QPS: -1,
		TLSClientConfig: restclient.TLSClientConfig{CAData: env.Config.CAData, CertData: certPEM, KeyData: keyPEM}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newKey is a key for a certificate.
func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// request is a certificate request of a node.
func request(t *testing.T, key *ecdsa.PrivateKey, signer, node string, names ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	usage := certificatesv1.UsageClientAuth
	if signer == certificatesv1.KubeletServingSignerName {
		usage = certificatesv1.UsageServerAuth
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage},
		},
	}
}

// answer sends a request and returns the certificate or why there is none.
func answer(t *testing.T, client kubernetes.Interface, csr *certificatesv1.CertificateSigningRequest) (*x509.Certificate, error) {
	t.Helper()
	requests := client.CertificatesV1().CertificateSigningRequests()
	made, err := requests.Create(t.Context(), csr, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if made, err = requests.Get(t.Context(), made.Name, metav1.GetOptions{}); err != nil {
			return nil, err
		}
		for _, c := range made.Status.Conditions {
			if c.Type != certificatesv1.CertificateApproved {
				return nil, fmt.Errorf("%s: %s", c.Type, c.Message)
			}
		}
		if block, _ := pem.Decode(made.Status.Certificate); block != nil {
			return x509.ParseCertificate(block.Bytes)
		}
	}
	return nil, errors.New("no answer")
}

// A stolen node that reports the control plane's names and addresses as its own gets
// no certificate for them, and what it gets nobody takes for the API server's.
func TestNodeDoesNotBecomeTheAPIServer(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	keys := keysOf(t, env)
	certPEM, keyPEM, err := keys.Signer().NewClient("system:node:n1", []string{"system:nodes"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	n1 := clientWith(t, env, certPEM, keyPEM)
	// Of two that report an address it is the older one's, and they may be made in different seconds.
	n2 := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	n2.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.8"}}
	if _, err := env.Client.CoreV1().Nodes().Create(t.Context(), n2, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, address := range []string{"10.0.0.7", "10.96.0.1", "127.0.0.1", "10.244.7.7", "10.0.0.8"} {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	for _, name := range []string{"n1", "kubernetes.default.svc", "kubernetes", "localhost"} {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: name})
	}
	if _, err := n1.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("the control loops see both nodes", func(ctx context.Context) error {
		_, err := answer(t, n1, request(t, newKey(t), certificatesv1.KubeletServingSignerName, "n1", "10.0.0.8"))
		if err == nil || !strings.Contains(err.Error(), "node n2") {
			return fmt.Errorf("asked for n2's address: %w", err)
		}
		return nil
	})
	for _, names := range [][]string{
		{"kubernetes.default.svc"}, {"n1", "kubernetes"}, {"10.96.0.1"}, {"127.0.0.1"}, {"n1", "localhost"}, {"10.244.7.7"}, {"n2"}, {"*.default.svc"},
	} {
		if cert, err := answer(t, n1, request(t, newKey(t), certificatesv1.KubeletServingSignerName, "n1", names...)); err == nil {
			t.Errorf("n1 has a certificate for %v: %v %v", names, cert.DNSNames, cert.IPAddresses)
		}
	}
	cert, err := answer(t, n1, request(t, newKey(t), certificatesv1.KubeletServingSignerName, "n1", "n1", "10.0.0.7"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: keys.CAPool()}); err == nil {
		t.Error("who trusts the API server trusts a node's serving certificate")
	}

	// What the API server shows to agents opens nothing in the API.
	shown, err := tls.LoadX509KeyPair(filepath.Join(env.DataDir(), "pki", "apiserver-kubelet-client.crt"), filepath.Join(env.DataDir(), "pki", "apiserver-kubelet-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	if len(shown.Leaf.Subject.Organization) > 0 {
		t.Errorf("the API server shows agents a certificate of %v", shown.Leaf.Subject)
	}
	certPEM, keyPEM, err = keys.Signer().NewClient(pki.KubeletClientUser, []string{pki.MastersGroup}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientWith(t, env, certPEM, keyPEM).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("the identity for calling agents lists nodes: %v", err)
	}
}
