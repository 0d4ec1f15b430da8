package server_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/cli"
	"github.com/everynode/everynode/internal/node/identity"
	"github.com/everynode/everynode/internal/testenv"
)

// newToken makes a join token and a client that shows it.
func newToken(t *testing.T, env *testenv.Env) kubernetes.Interface {
	t.Helper()
	secret, token, err := authn.NewBootstrapToken(time.Now(), time.Hour, "test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Client.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(&restclient.Config{Host: env.Config.Host, QPS: -1, BearerToken: token.Bootstrap(),
		TLSClientConfig: restclient.TLSClientConfig{CAData: env.Config.CAData}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// machine is one that joins: with a key of its own, and a client certificate once it has joined.
type machine struct {
	identity, key *ecdsa.PrivateKey
	kubernetes.Interface
	cert *x509.Certificate
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	return &machine{identity: newKey(t)}
}

// join asks for a client certificate with a token, or with the certificate that the machine has.
func (m *machine) join(t *testing.T, env *testenv.Env, with kubernetes.Interface, node string) error {
	t.Helper()
	key := newKey(t)
	csr := request(t, key, certificatesv1.KubeAPIServerClientKubeletSignerName, node)
	if m.identity != nil {
		var err error
		csr.Annotations, err = identity.Sign(m.identity, node, csr.Spec.Request)
		if err != nil {
			t.Fatal(err)
		}
	}
	cert, err := answer(t, with, csr)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	m.key, m.cert = key, cert
	m.Interface = clientWith(t, env, certPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	return nil
}

// register makes the machine's Node.
func (m *machine) register(t *testing.T, node string) {
	t.Helper()
	if _, err := m.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Who has a join token does not get the name of a node that lives.
func TestNameOfALivingNodeIsNotGivenAway(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	token, owner, thief, stranger := newToken(t, env), newMachine(t), newMachine(t), &machine{}
	refused := func(who string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "Denied") {
			t.Errorf("%s: %v, want it denied", who, err)
		}
	}
	must(t, owner.join(t, env, token, "n1"))
	refused("a thief, before the node has registered", thief.join(t, env, token, "n1"))
	owner.register(t, "n1")
	refused("a thief", thief.join(t, env, token, "n1"))
	refused("a machine without a key", stranger.join(t, env, token, "n1"))
	refused("a thief with another token", thief.join(t, env, newToken(t, env), "n1"))
	must(t, owner.join(t, env, token, "n1"))
	must(t, owner.join(t, env, owner, "n1"))
	must(t, thief.join(t, env, token, "n2"))

	// A copy of the owner's request is of no use: the certificate is for the owner's key.
	list, err := env.Client.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, csr := range list.Items {
		if csr.Annotations[identity.KeyAnnotation] == "" || csr.Spec.Username == "system:node:n1" {
			continue
		}
		mixed := request(t, newKey(t), certificatesv1.KubeAPIServerClientKubeletSignerName, "n1")
		mixed.Annotations = csr.Annotations
		_, err := answer(t, token, mixed)
		refused("a thief with the signature of another request", err)
	}

	// The records are no business of nodes.
	if _, err := owner.CoreV1().Secrets("kube-system").Get(t.Context(), identity.RecordName("n1"), metav1.GetOptions{}); err == nil {
		t.Error("a node reads whom its name belongs to")
	}
	// All the same after a restart; and deleting the Node frees the name.
	env.Restart()
	token = newToken(t, env)
	refused("a thief, after a restart", thief.join(t, env, token, "n1"))
	record, err := env.Client.CoreV1().Secrets("kube-system").Get(t.Context(), identity.RecordName("n1"), metav1.GetOptions{})
	must(t, err)
	record.Data["registered"] = []byte("true") // as with its serving certificate
	_, err = env.Client.CoreV1().Secrets("kube-system").Update(t.Context(), record, metav1.UpdateOptions{})
	must(t, err)
	must(t, env.Client.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
	must(t, stranger.join(t, env, token, "n1"))
}

// revoke runs the command.
func revoke(t *testing.T, env *testenv.Env, node string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	if code := cli.Execute(t.Context(), []string{"node", "revoke", node, "--data-dir", env.DataDir()}, &out, &errOut); code != 0 {
		t.Fatalf("everynode node revoke: %s", &errOut)
	}
	return out.String()
}

// A revoked node is shut out at once, by a server that starts again too, and can come back with a new token.
func TestRevokedNodeIsShutOut(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	token, m := newToken(t, env), newMachine(t)
	must(t, m.join(t, env, token, "n1"))
	m.register(t, "n1")
	neighbour := newMachine(t)
	must(t, neighbour.join(t, env, token, "n2"))
	watch, err := m.CoreV1().Services("").Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	other, err := neighbour.CoreV1().Services("").Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(300))})
	must(t, err)
	// One more certificate, that nobody has used yet.
	spare := &machine{identity: m.identity}
	must(t, spare.join(t, env, m, "n1"))

	told := revoke(t, env, "n1")
	for _, line := range []string{"node n1 are refused", "delete node n1", "bootstrap-token-", "everynode token create"} {
		if !strings.Contains(told, line) {
			t.Errorf("the command does not say %q: %s", line, told)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range watch.ResultChan() {
			_ = event
		}
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the watch of a revoked node goes on")
	}
	shutOut := func(when string, who *machine) {
		t.Helper()
		if _, err := who.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
			t.Errorf("%s the node reads: %v, want it unauthorized", when, err)
		}
		if err := who.join(t, env, who, "n1"); err == nil {
			t.Errorf("%s the node renews its certificate", when)
		}
	}
	shutOut("after its revocation", m)
	shutOut("with a certificate that it kept", spare)
	if err := m.join(t, env, token, "n1"); err == nil || !strings.Contains(err.Error(), "this join token is older") {
		t.Errorf("a token of before: %v", err)
	}
	if _, err := neighbour.CoreV1().Services("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("another node: %v", err)
	}
	select {
	case _, open := <-other.ResultChan():
		if !open {
			t.Error("the watch of another node ended")
		}
	default:
	}

	der, err := x509.MarshalPKCS8PrivateKey(spare.key)
	must(t, err)
	env.Restart()
	spare.Interface = clientWith(t, env, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: spare.cert.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	shutOut("after a restart", spare)

	// Back with a new token, also as a machine with another key; the old one stays out.
	back := newMachine(t)
	must(t, back.join(t, env, newToken(t, env), "n1"))
	must(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := back.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		return err == nil, nil
	}))
	shutOut("after another machine has joined", spare)
	told = revoke(t, env, "never-there")
	if !strings.Contains(told, "no Node of that name") {
		t.Errorf("about a node that never was: %s", told)
	}
}
