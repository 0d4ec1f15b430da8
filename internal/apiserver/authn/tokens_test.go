package authn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
)

const ownIssuer = "https://kubernetes.default.svc"

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func meta(namespace, name string, uid types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}
}

// world is an issuer with an account, a pod on a node, and a secret.
type world struct {
	*Tokens
	clock   *clocktesting.FakePassiveClock
	api     *fake.Clientset
	key     *ecdsa.PrivateKey
	account *corev1.ServiceAccount
	pod     *corev1.Pod
	node    *corev1.Node
	secret  *corev1.Secret
}

// oneKey signs tokens; the old ones verify, too.
type oneKey struct {
	key *ecdsa.PrivateKey
	old []*ecdsa.PublicKey
}

func (k *oneKey) ServiceAccountKey() *ecdsa.PrivateKey { return k.key }
func (k *oneKey) ServiceAccountKeys() []*ecdsa.PublicKey {
	return append([]*ecdsa.PublicKey{&k.key.PublicKey}, k.old...)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		clock: clocktesting.NewFakePassiveClock(start), key: key,
		account: &corev1.ServiceAccount{ObjectMeta: meta("ns", "robot", "sa-uid")},
		pod: &corev1.Pod{ObjectMeta: meta("ns", "pod", "pod-uid"),
			Spec: corev1.PodSpec{ServiceAccountName: "robot", NodeName: "n1"}},
		node:   &corev1.Node{ObjectMeta: meta("", "n1", "node-uid")},
		secret: &corev1.Secret{ObjectMeta: meta("ns", "secret", "secret-uid")},
	}
	w.api = fake.NewClientset(w.account, w.pod, w.node, w.secret)
	w.Tokens, err = NewTokens(TokensConfig{Issuers: []string{ownIssuer}, Keys: &oneKey{key: key}, Getters: ofClient{w.api}, Clock: w.clock})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) issue(t *testing.T, bound Binding, audiences ...string) string {
	t.Helper()
	issued, err := w.Generate(w.account, bound, audiences, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return issued.Token
}

func TestTokenTellsWhoItIs(t *testing.T) {
	w := newWorld(t)
	token := w.issue(t, Binding{Pod: w.pod, Node: w.node})
	response, ok, err := w.AuthenticateToken(t.Context(), token)
	if err != nil || !ok {
		t.Fatalf("refused: %v", err)
	}
	who := response.User
	if who.GetName() != "system:serviceaccount:ns:robot" || who.GetUID() != "sa-uid" {
		t.Errorf("user %q %q", who.GetName(), who.GetUID())
	}
	if got := strings.Join(who.GetGroups(), ","); got != "system:serviceaccounts,system:serviceaccounts:ns" {
		t.Errorf("groups %s", got)
	}
	for key, want := range map[string]string{"pod-name": "pod", "pod-uid": "pod-uid", "node-name": "n1", "node-uid": "node-uid"} {
		if got := who.GetExtra()["authentication.kubernetes.io/"+key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s = %v, want %s", key, got, want)
		}
	}
	if id := who.GetExtra()["authentication.kubernetes.io/credential-id"]; len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
		t.Errorf("credential id %v", id)
	}
	if len(response.Audiences) != 1 || response.Audiences[0] != ownIssuer {
		t.Errorf("audiences %v", response.Audiences)
	}
}

// Where the key was changed, tokens that the one before has signed are good until they end, or that key is taken away.
func TestTokensOutliveTheKeyThatSignedThem(t *testing.T) {
	w := newWorld(t)
	token, keys := w.issue(t, Binding{}), w.keys.(*oneKey)
	next, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	old := &keys.key.PublicKey
	for _, kept := range [][]*ecdsa.PublicKey{{old}, {&next.PublicKey, old}, nil} {
		keys.key, keys.old = next, kept
		if _, ok, err := w.AuthenticateToken(t.Context(), token); ok != (kept != nil) {
			t.Errorf("beside %d keys a token of the one before is accepted: %v, %v", len(kept), ok, err)
		}
		if _, ok, err := w.AuthenticateToken(t.Context(), w.issue(t, Binding{})); !ok {
			t.Errorf("a token of the new key is refused: %v", err)
		}
	}
}

func TestTokenDiesWithItsObjects(t *testing.T) {
	deleted := metav1.NewTime(start)
	cases := []struct {
		name   string
		bound  func(*world) Binding
		change func(*testing.T, *world)
		valid  bool
	}{
		{"nothing changed", func(w *world) Binding { return Binding{Pod: w.pod, Node: w.node} }, func(*testing.T, *world) {}, true},
		{"account deleted", func(*world) Binding { return Binding{} }, func(t *testing.T, w *world) {
			remove(t, w.api.CoreV1().ServiceAccounts("ns").Delete(t.Context(), "robot", metav1.DeleteOptions{}))
		}, false},
		{"account made again", func(*world) Binding { return Binding{} }, func(t *testing.T, w *world) {
			w.account.UID = "other"
			_, err := w.api.CoreV1().ServiceAccounts("ns").Update(t.Context(), w.account, metav1.UpdateOptions{})
			remove(t, err)
		}, false},
		{"pod deleted", func(w *world) Binding { return Binding{Pod: w.pod} }, func(t *testing.T, w *world) {
			remove(t, w.api.CoreV1().Pods("ns").Delete(t.Context(), "pod", metav1.DeleteOptions{}))
		}, false},
		{"pod made again", func(w *world) Binding { return Binding{Pod: w.pod} }, func(t *testing.T, w *world) {
			w.pod.UID = "other"
			_, err := w.api.CoreV1().Pods("ns").Update(t.Context(), w.pod, metav1.UpdateOptions{})
			remove(t, err)
		}, false},
		{"pod shutting down", func(w *world) Binding { return Binding{Pod: w.pod} }, func(t *testing.T, w *world) {
			w.pod.DeletionTimestamp = &deleted
			_, err := w.api.CoreV1().Pods("ns").Update(t.Context(), w.pod, metav1.UpdateOptions{})
			remove(t, err)
		}, true},
		{"pod shut down long ago", func(w *world) Binding { return Binding{Pod: w.pod} }, func(t *testing.T, w *world) {
			w.pod.DeletionTimestamp = &deleted
			_, err := w.api.CoreV1().Pods("ns").Update(t.Context(), w.pod, metav1.UpdateOptions{})
			remove(t, err)
			w.clock.SetTime(start.Add(2 * time.Minute))
		}, false},
		{"pod's node deleted", func(w *world) Binding { return Binding{Pod: w.pod, Node: w.node} }, func(t *testing.T, w *world) {
			remove(t, w.api.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
		}, true},
		{"node deleted", func(w *world) Binding { return Binding{Node: w.node} }, func(t *testing.T, w *world) {
			remove(t, w.api.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
		}, false},
		{"secret deleted", func(w *world) Binding { return Binding{Secret: w.secret} }, func(t *testing.T, w *world) {
			remove(t, w.api.CoreV1().Secrets("ns").Delete(t.Context(), "secret", metav1.DeleteOptions{}))
		}, false},
		{"last second", func(*world) Binding { return Binding{} }, func(_ *testing.T, w *world) { w.clock.SetTime(start.Add(time.Hour)) }, true},
		{"over", func(*world) Binding { return Binding{} }, func(_ *testing.T, w *world) { w.clock.SetTime(start.Add(time.Hour + time.Second)) }, false},
		{"from the future", func(*world) Binding { return Binding{} }, func(_ *testing.T, w *world) { w.clock.SetTime(start.Add(-time.Minute)) }, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			token := w.issue(t, c.bound(w))
			c.change(t, w)
			_, ok, err := w.AuthenticateToken(t.Context(), token)
			if ok != c.valid || (err == nil) != c.valid {
				t.Errorf("accepted %v, %v; want %v", ok, err, c.valid)
			}
		})
	}
}

func remove(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAudiences(t *testing.T) {
	w := newWorld(t)
	vault := w.issue(t, Binding{}, "vault", "other")
	if _, ok, err := w.AuthenticateToken(t.Context(), vault); ok || err == nil {
		t.Errorf("a token for vault opened the API: %v", err)
	}
	ctx := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"vault"})
	response, ok, err := w.AuthenticateToken(ctx, vault)
	if !ok || err != nil || len(response.Audiences) != 1 || response.Audiences[0] != "vault" {
		t.Errorf("for vault: %v %v", response, err)
	}
	if _, ok, _ := w.AuthenticateToken(ctx, w.issue(t, Binding{})); ok {
		t.Error("a token for the API was accepted for vault")
	}
}

// forge signs claims with any key and algorithm.
func forge(t *testing.T, algorithm jose.SignatureAlgorithm, key any, header map[jose.HeaderKey]any, c any) string {
	t.Helper()
	options := &jose.SignerOptions{ExtraHeaders: header}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestHostileTokens(t *testing.T) {
	w := newWorld(t)
	good := w.issue(t, Binding{})
	otherKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&w.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	valid := newClaims(ownIssuer, "id", w.account, Binding{}, []string{ownIssuer}, start, time.Hour)
	with := func(change func(*claims)) claims {
		c := valid
		change(&c)
		return c
	}
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	payload := strings.Split(good, ".")[1]
	cases := map[string]string{
		"empty":                          "",
		"dots":                           "..",
		"not base64":                     "a.b.c",
		"no algorithm":                   encode(`{"alg":"none","typ":"JWT"}`) + "." + payload + ".",
		"signature dropped":              strings.Join(strings.Split(good, ".")[:2], ".") + ".",
		"payload changed":                strings.Replace(good, payload, encode(`{"iss":"`+ownIssuer+`"}`), 1),
		"signed by another key":          forge(t, jose.ES256, otherKey, nil, valid),
		"signed by its own header's key": forge(t, jose.ES256, jose.JSONWebKey{Key: otherKey}, map[jose.HeaderKey]any{"jwk": jose.JSONWebKey{Key: &otherKey.PublicKey}}, valid),
		"another algorithm":              forge(t, jose.RS256, rsaKey, nil, valid),
		"public key as a shared secret":  forge(t, jose.HS256, public, nil, valid),
		"no end":                         forge(t, jose.ES256, w.key, nil, with(func(c *claims) { c.Expiry = nil })),
		"no start":                       forge(t, jose.ES256, w.key, nil, with(func(c *claims) { c.NotBefore = nil })),
		"no audience":                    forge(t, jose.ES256, w.key, nil, with(func(c *claims) { c.Audience = nil })),
		"subject of somebody else":       forge(t, jose.ES256, w.key, nil, with(func(c *claims) { c.Subject = "system:serviceaccount:kube-system:admin" })),
		"user as the subject":            forge(t, jose.ES256, w.key, nil, with(func(c *claims) { c.Subject = "admin" })),
		"no account":                     forge(t, jose.ES256, w.key, nil, with(func(c *claims) { c.Kubernetes.ServiceAccount = reference{} })),
		"no account uid":                 forge(t, jose.ES256, w.key, nil, with(func(c *claims) { c.Kubernetes.ServiceAccount.UID = "" })),
		"another issuer":                 forge(t, jose.ES256, w.key, nil, with(func(c *claims) { c.Issuer = "https://evil" })),
		"claims of the wrong type":       forge(t, jose.ES256, w.key, nil, map[string]any{"iss": ownIssuer, "kubernetes.io": "x"}),
		"very long":                      good + strings.Repeat("A", maxTokenLength),
	}
	if _, ok, err := w.AuthenticateToken(t.Context(), good); !ok || err != nil {
		t.Fatalf("the good token was refused: %v", err)
	}
	if _, ok, err := w.AuthenticateToken(t.Context(), forge(t, jose.ES256, w.key, nil, valid)); !ok || err != nil {
		t.Fatalf("the forging tool makes bad tokens: %v", err)
	}
	for name, token := range cases {
		if response, ok, _ := w.AuthenticateToken(t.Context(), token); ok || response != nil {
			t.Errorf("%s: accepted as %v", name, response)
		}
	}
}

func TestDiscoveryLetsOthersVerify(t *testing.T) {
	w := newWorld(t)
	handlers, err := w.Discovery("https://example.com:6443" + KeysPath)
	if err != nil {
		t.Fatal(err)
	}
	get := func(method, path string) *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		handlers[path].ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
		return recorder
	}
	var configuration map[string]any
	if err := json.Unmarshal(get(http.MethodGet, DiscoveryPath).Body.Bytes(), &configuration); err != nil {
		t.Fatal(err)
	}
	if configuration["issuer"] != ownIssuer || configuration["jwks_uri"] != "https://example.com:6443"+KeysPath {
		t.Errorf("configuration %v", configuration)
	}
	var keys jose.JSONWebKeySet
	body := get(http.MethodGet, KeysPath).Body.Bytes()
	if err := json.Unmarshal(body, &keys); err != nil || len(keys.Keys) != 1 || !keys.Keys[0].IsPublic() {
		t.Fatalf("keys %s: %v", body, err)
	}
	parsed, err := jwt.ParseSigned(w.issue(t, Binding{}), []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	var c jwt.Claims
	if err := parsed.Claims(keys.Key(parsed.Headers[0].KeyID)[0], &c); err != nil {
		t.Errorf("the published key does not verify a token: %v", err)
	}
	for accept, want := range map[string]int{
		"": 200, "*/*": 200, "application/json, */*;q=0.1": 200, "application/*": 200, "application/jwk-set+json": 200,
		"application/json": 406, "text/*": 406,
	} {
		recorder, asked := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, KeysPath, nil)
		asked.Header.Set("Accept", accept)
		handlers[KeysPath].ServeHTTP(recorder, asked)
		if recorder.Code != want {
			t.Errorf("keys for who accepts %q: %d, want %d", accept, recorder.Code, want)
		}
	}
	if code := get(http.MethodPost, KeysPath).Code; code != http.StatusMethodNotAllowed {
		t.Errorf("POST gives %d", code)
	}
}
