package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

// issuer is an OpenID Connect issuer of somebody else's.
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	answer := func(path string, what func() any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(what())
		})
	}
	answer("/.well-known/openid-configuration", func() any {
		return map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}}
	})
	answer("/keys", func() any {
		return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}}
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

// token is one of the issuer's.
func (i *issuer) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "one"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{"iss": i.URL, "aud": "everynode", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
	for name, value := range claims {
		all[name] = value
	}
	token, err := jwt.Signed(signer).Claims(all).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// with is a client that shows a token, or nothing.
func with(t *testing.T, config *restclient.Config, token string) kubernetes.Interface {
	t.Helper()
	bare := restclient.AnonymousClientConfig(config)
	bare.BearerToken = token
	return kubernetes.NewForConfigOrDie(bare)
}

// TestWhoIsLetIn is a server whose operator has said who: people with tokens of an issuer
// of theirs, nobody without anything, and service accounts under another issuer's name.
func TestWhoIsLetIn(t *testing.T) {
	t.Parallel()
	is := newIssuer(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: is.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	env := testenv.Start(t, func(o *config.Options) {
		a := o.API.Authentication
		a.Anonymous, a.AnonymousGiven = false, true
		a.OIDC.IssuerURL, a.OIDC.ClientID, a.OIDC.CAFile = is.URL, "everynode", ca
		a.OIDC.UsernamePrefix, a.OIDC.GroupsClaim = "corp:", "groups"
		a.OIDC.SigningAlgorithms = []string{"ES256"}
		o.API.ServiceAccounts.Issuers = []string{"https://new.example", "https://kubernetes.default.svc"}
		o.API.ServiceAccounts.MaxExpiration = time.Hour
		o.API.NodeNetworks = []string{"10.0.0.0/8"}
		o.API.Objects.NotReadySeconds, o.API.Objects.UnreachableSeconds, o.API.Objects.EventLifetime = 7, 8, 2*time.Second
	})
	for _, path := range []string{"/version", "/livez", "/readyz", "/api", "/openapi/v2"} {
		_, err := with(t, env.Config, "").CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("%s without anything: %v", path, err)
		}
	}
	people(t, env, is)
	nodes(t, env)
	accounts(t, env)
	objects(t, env)
}

func people(t *testing.T, env *testenv.Env, is *issuer) {
	t.Helper()
	who := func(ctx context.Context, token string) (string, error) {
		review, err := with(t, env.Config, token).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(review.Status.UserInfo.Username, review.Status.UserInfo.Groups), nil
	}
	good := is.token(t, map[string]any{"groups": []string{"ops", "corp:system:masters"}})
	env.Eventually("the issuer's keys are known", func(ctx context.Context) error {
		_, err := who(ctx, good)
		return err
	})
	if got, err := who(t.Context(), good); err != nil || got != "corp:ann[ops corp:system:masters system:authenticated]" {
		t.Errorf("ann is %s, %v", got, err)
	}
	if _, err := with(t, env.Config, good).CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a group that the issuer calls like the administrators': %v", err)
	}
	stranger := newIssuer(t)
	forged := &issuer{is.Server, stranger.key}
	for name, token := range map[string]string{
		"ended": is.token(t, map[string]any{"exp": time.Now().Add(-time.Minute).Unix()}), "for somebody else": is.token(t, map[string]any{"aud": "other"}),
		"for an administrator": is.token(t, map[string]any{"groups": []string{"ops", "system:masters"}}),
		"of another issuer":    stranger.token(t, nil), "signed by another": forged.token(t, nil), "in the cluster's name": is.token(t, map[string]any{"iss": "https://kubernetes.default.svc"}),
	} {
		if got, err := who(t.Context(), token); !apierrors.IsUnauthorized(err) {
			t.Errorf("a token that is %s: %s, %v", name, got, err)
		}
	}
}

// nodes are of the networks that the operator has named.
func nodes(t *testing.T, env *testenv.Env) {
	t.Helper()
	config := restclient.CopyConfig(env.Config)
	config.Impersonate = restclient.ImpersonationConfig{UserName: "system:node:n1", Groups: []string{"system:nodes"}}
	client := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.0.1"}}
	_, err := client.Create(t.Context(), n, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "192.168.0.1") {
		t.Errorf("a node with an address of another network: %v", err)
	}
	n.Status.Addresses[0].Address = "10.1.2.3"
	_, err = client.Create(t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("a node with an address of theirs: %v", err)
	}
}

func accounts(t *testing.T, env *testenv.Env) {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(7200))}}
	issued, err := env.Client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(issued.Status.ExpirationTimestamp.Time); left > time.Hour || *issued.Spec.ExpirationSeconds != 3600 {
		t.Errorf("a token is good for %v, %d seconds", left, *issued.Spec.ExpirationSeconds)
	}
	if !slices.Contains(issued.Spec.Audiences, "https://new.example") {
		t.Errorf("its audiences are %v", issued.Spec.Audiences)
	}
	review, err := env.Client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: issued.Status.Token}}, metav1.CreateOptions{})
	if err != nil || !review.Status.Authenticated || review.Status.User.Username != "system:serviceaccount:default:default" {
		t.Errorf("it is %+v, %v", review.Status, err)
	}
	found, err := env.Client.CoreV1().RESTClient().Get().AbsPath("/.well-known/openid-configuration").DoRaw(t.Context())
	if err != nil || !strings.Contains(string(found), `"issuer":"https://new.example"`) {
		t.Errorf("the issuer's discovery is %s, %v", found, err)
	}
	// Those who joined before the issuer had a new name go on with what they have.
	env.Restart(func(o *config.Options) {
		o.API.ServiceAccounts.Issuers = []string{"https://newer.example", "https://new.example"}
	})
	if _, err := with(t, env.Config, issued.Status.Token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err != nil {
		t.Errorf("a token of the issuer before: %v", err)
	}
	env.Restart(func(o *config.Options) { o.API.ServiceAccounts.Issuers = []string{"https://newer.example"} })
	if _, err := with(t, env.Config, issued.Status.Token).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token of an issuer that is accepted no more: %v", err)
	}
}

func objects(t *testing.T, env *testenv.Env) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	made, err := env.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil || len(made.Spec.Tolerations) != 2 || *made.Spec.Tolerations[0].TolerationSeconds != 7 || *made.Spec.Tolerations[1].TolerationSeconds != 8 {
		t.Errorf("its tolerations are %v, %v", made.Spec.Tolerations, err)
	}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "short"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "a"}, Reason: "x", Type: "Normal"}
	if _, err := env.Client.CoreV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("the event has gone", func(ctx context.Context) error {
		if _, err := env.Client.CoreV1().Events("default").Get(ctx, "short", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
}
