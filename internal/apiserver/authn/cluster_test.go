package authn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/testenv"
)

// clientWith is a client that trusts the server and proves its identity by what
// change adds.
func clientWith(t *testing.T, env *testenv.Env, change func(*restclient.Config)) kubernetes.Interface {
	t.Helper()
	config := restclient.AnonymousClientConfig(env.Config)
	change(config)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func bearer(token string) func(*restclient.Config) {
	return func(c *restclient.Config) { c.BearerToken = token }
}

func whoAmI(t *testing.T, client kubernetes.Interface) authenticationv1.UserInfo {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

func says(t *testing.T, what string, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %q", what, err, text)
	}
}

// requestCertificate asks as client and waits for the certificate.
func requestCertificate(t *testing.T, env *testenv.Env, client kubernetes.Interface, signer string, usage certificatesv1.KeyUsage, template x509.CertificateRequest) func(*restclient.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.Subject = pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	created, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, usage},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var certificate []byte
	env.Eventually("a certificate", func(ctx context.Context) error {
		csr, err := client.CertificatesV1().CertificateSigningRequests().Get(ctx, created.Name, metav1.GetOptions{})
		if err == nil && len(csr.Status.Certificate) == 0 {
			err = fmt.Errorf("conditions %v", csr.Status.Conditions)
		}
		if err == nil {
			certificate = csr.Status.Certificate
		}
		return err
	})
	return func(c *restclient.Config) {
		c.CertData, c.KeyData = certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	}
}

func TestIdentitiesAgainstARunningServer(t *testing.T) {
	env := testenv.Start(t)
	for name, story := range map[string]func(*testing.T, *testenv.Env){
		"a node joins": nodeJoins, "service account tokens": serviceAccountTokens, "roles": roles,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // two of them wait until an accepted token is forgotten
			story(t, env)
		})
	}
}

func nodeJoins(t *testing.T, env *testenv.Env) {
	ctx := t.Context()
	secret, token, err := authn.NewBootstrapToken(time.Now(), time.Hour, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := env.Client.CoreV1().Secrets(secret.Namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	joining := clientWith(t, env, bearer(token.Bootstrap()))
	if who := whoAmI(t, joining); who.Username != "system:bootstrap:"+token.ID {
		t.Errorf("the token is user %q", who.Username)
	}
	_, err = joining.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	says(t, "a joining node lists pods", err, fmt.Sprintf(`User "system:bootstrap:%s" cannot list resource "pods" in API group "" in the namespace "default"`, token.ID))

	identity := requestCertificate(t, env, joining, certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.UsageClientAuth, x509.CertificateRequest{})
	node := clientWith(t, env, identity)
	if who := whoAmI(t, node); who.Username != "system:node:n1" || !strings.Contains(strings.Join(who.Groups, " "), "system:nodes") {
		t.Errorf("the certificate is user %v", who)
	}
	_, err = node.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.2.3"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("the node cannot register: %v", err)
	}
	_, err = node.CoreV1().Nodes().Patch(ctx, "n1", "application/merge-patch+json",
		[]byte(`{"status":{"addresses":[{"type":"InternalIP","address":"10.1.2.3"}]}}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatalf("the node cannot report its address: %v", err)
	}
	staysAtHome(t, env, node)
	serving := requestCertificate(t, env, node, certificatesv1.KubeletServingSignerName, certificatesv1.UsageServerAuth,
		x509.CertificateRequest{DNSNames: []string{"n1"}, IPAddresses: []net.IP{net.ParseIP("10.1.2.3")}})
	_, err = clientWith(t, env, serving).CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("a serving certificate as a client's: %v, want Unauthorized", err)
	}
	if err := env.Client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("the deleted token is refused", func(ctx context.Context) error {
		_, err := joining.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("answer: %w", err)
		}
		return nil
	})
}

// staysAtHome checks that a node is kept to its own affairs.
func staysAtHome(t *testing.T, env *testenv.Env, node kubernetes.Interface) {
	ctx := t.Context()
	_, err := node.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, metav1.CreateOptions{})
	says(t, "a node makes another node", err, `node "n1" is not allowed to modify node "n2"`)
	for _, name := range []string{"used", "unused"} {
		_, err := env.Client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = node.CoreV1().Secrets("default").Get(ctx, "used", metav1.GetOptions{})
	says(t, "a node reads a secret", err, "no relationship found between node 'n1' and this object")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	if _, err := env.Client.CoreV1().ServiceAccounts("default").Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		NodeName: "n1", ServiceAccountName: account.Name,
		Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "used"}}}},
		Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}
	pod, err = env.Client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.CoreV1().Secrets("default").Get(ctx, "used", metav1.GetOptions{}); err != nil {
		t.Errorf("the node cannot read the secret of a pod that it has just got: %v", err)
	}
	_, err = node.CoreV1().Secrets("default").Get(ctx, "unused", metav1.GetOptions{})
	says(t, "a node reads a secret that no pod of its uses", err, "no relationship found")
	_, err = node.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	says(t, "a node lists secrets", err, "No Object name found")
	_, err = node.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	says(t, "a node lists all pods", err, "spec.nodeName")
	if own, err := node.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1"}); err != nil || len(own.Items) != 1 {
		t.Errorf("the node's own pods: %v", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}}
	if _, err := node.CoreV1().ServiceAccounts("default").CreateToken(ctx, account.Name, request, metav1.CreateOptions{}); err != nil {
		t.Errorf("the node cannot get a token for its pod: %v", err)
	}
	request.Spec.BoundObjectRef = nil
	_, err = node.CoreV1().ServiceAccounts("default").CreateToken(ctx, account.Name, request, metav1.CreateOptions{})
	says(t, "a node asks for a token for no pod", err, "not bound to a pod")
}

func serviceAccountTokens(t *testing.T, env *testenv.Env) {
	ctx := t.Context()
	accounts := env.Client.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := accounts.CreateToken(ctx, "robot", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(60))}}, metav1.CreateOptions{})
	says(t, "a short token", err, "may not specify a duration less than 10 minutes")
	issued, err := accounts.CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	robot := clientWith(t, env, bearer(issued.Status.Token))
	if who := whoAmI(t, robot); who.Username != "system:serviceaccount:default:robot" {
		t.Errorf("the token is user %q", who.Username)
	}
	review, err := env.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: issued.Status.Token}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated {
		t.Errorf("token review: %+v, %v", review.Status, err)
	}
	if err := accounts.Delete(ctx, "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("the token of a deleted account is refused", func(ctx context.Context) error {
		_, err := robot.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("answer: %w", err)
		}
		return nil
	})
}

func roles(t *testing.T, env *testenv.Env) {
	ctx := t.Context()
	rbac := env.Client.RbacV1()
	if _, err := rbac.RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "jane"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "jane"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	jane := clientWith(t, env, func(c *restclient.Config) {
		c.TLSClientConfig = env.Config.TLSClientConfig
		c.Impersonate = restclient.ImpersonationConfig{UserName: "jane"}
	})
	may := func(ctx context.Context, verb, resource string) error {
		review, err := jane.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: resource, Namespace: "default"}}}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("jane may not %s %s: %s", verb, resource, review.Status.Reason)
		}
		return err
	}
	// From the role edit through its label into admin: the collected rules.
	env.Eventually("admin holds the rules of edit and view", func(ctx context.Context) error {
		if err := may(ctx, "create", "pods"); err != nil {
			return err
		}
		return may(ctx, "list", "endpoints")
	})
	if err := may(ctx, "list", "nodes"); err == nil {
		t.Error("a namespace's admin may list nodes")
	}
	_, err := jane.RbacV1().Roles("default").Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "own"},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("jane cannot grant what she holds: %v", err)
	}
	_, err = jane.RbacV1().Roles("default").Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "more"},
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}}, metav1.CreateOptions{})
	says(t, "jane grants more than she holds", err, "is attempting to grant RBAC permissions not currently held")
	_, err = jane.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "root"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}}, metav1.CreateOptions{})
	says(t, "jane binds cluster-admin", err, "not currently held")
}
