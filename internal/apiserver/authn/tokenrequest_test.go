package authn

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/apis/apiserver"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/everynode/everynode/internal/pki"
)

func TestTokenRequest(t *testing.T) {
	type request = authenticationv1.TokenRequest
	bind := func(kind, name, uid string) func(*request) {
		return func(r *request) {
			r.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name, UID: types.UID(uid)}
		}
	}
	cases := []struct {
		name    string
		account string
		change  func(*request)
		says    string
	}{
		{"plain", "robot", func(*request) {}, ""},
		{"pod", "robot", bind("Pod", "pod", "pod-uid"), ""},
		{"pod without uid", "robot", bind("Pod", "pod", ""), ""},
		{"secret", "robot", bind("Secret", "secret", "secret-uid"), ""},
		{"node", "robot", bind("Node", "n1", "node-uid"), ""},
		{"ten minutes", "robot", func(r *request) { r.Spec.ExpirationSeconds = new(int64(600)) }, ""},
		{"too short", "robot", func(r *request) { r.Spec.ExpirationSeconds = new(int64(599)) },
			"spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes"},
		{"too long", "robot", func(r *request) { r.Spec.ExpirationSeconds = new(int64(1<<32 + 1)) }, "may not specify a duration larger than 2^32 seconds"},
		{"no such account", "nobody", func(*request) {}, `serviceaccounts "nobody" not found`},
		{"no such pod", "robot", bind("Pod", "gone", ""), `pods "gone" not found`},
		{"pod made again", "robot", bind("Pod", "pod", "old"), "does not match the UID in record"},
		{"pod of another account", "other", bind("Pod", "pod", ""), `cannot bind token for serviceaccount "other" to pod running with different serviceaccount name.`},
		{"no name", "robot", bind("Secret", "", ""), "Name parameter required."},
		{"a name that is none", "robot", bind("Node", "a/b", ""), `Name parameter invalid: "a/b": may not contain '/'`},
		{"another kind", "robot", bind("ConfigMap", "x", ""), "cannot bind token to object of type /v1, Kind=ConfigMap"},
		{"another name", "robot", func(r *request) { r.Name = "other" }, `the name in the URL ("robot") and in the body ("other") differ`},
		{"another namespace", "robot", func(r *request) { r.Namespace = "other" }, "does not match the namespace"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			other := w.account.DeepCopy()
			other.Name = "other"
			if err := w.api.Tracker().Add(other); err != nil {
				t.Fatal(err)
			}
			r := &request{}
			c.change(r)
			ctx := genericapirequest.WithNamespace(t.Context(), "ns")
			obj, err := NewTokenREST(w.Tokens).Create(ctx, c.account, r, nil, nil)
			if c.says != "" {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Fatalf("error = %v, want %q", err, c.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := obj.(*request)
			want := start.Add(time.Duration(*got.Spec.ExpirationSeconds) * time.Second)
			if !got.Status.ExpirationTimestamp.Time.Equal(want) || len(got.Spec.Audiences) != 1 || got.Name != "robot" {
				t.Errorf("answer %+v", got)
			}
			if _, ok, err := w.AuthenticateToken(t.Context(), got.Status.Token); !ok || err != nil {
				t.Errorf("the token is not accepted: %v", err)
			}
		})
	}
}

// The whole chain as a server uses it, with each proof of identity.
func TestRequestAuthenticator(t *testing.T) {
	w := newWorld(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	bundle, err := pki.LoadOrCreate(t.TempDir(), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := pki.LoadOrCreate(t.TempDir(), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	secret, token, err := NewBootstrapToken(clock.Now(), time.Hour, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.api.Tracker().Add(secret); err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{ClientCAs: func() (x509.VerifyOptions, bool) {
		return x509.VerifyOptions{Roots: bundle.CAPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
	}, Tokens: w.Tokens, BootstrapSecrets: newJoinTokens(ofClient{w.api}.GetSecret, nil), Clock: clock, Anonymous: &apiserver.AnonymousAuthConfig{Enabled: true}})
	if err != nil {
		t.Fatal(err)
	}
	certificateOf := func(b *pki.Bundle, user string) *x509.Certificate {
		certPEM, keyPEM, err := b.Signer().NewClient(user, []string{"devs"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf
	}
	certificate := func(b *pki.Bundle) *x509.Certificate { return certificateOf(b, "jane") }
	cases := []struct {
		name   string
		bearer string
		cert   *x509.Certificate
		user   string // empty: refused
		group  string
	}{
		{"nothing", "", nil, "system:anonymous", "system:unauthenticated"},
		{"certificate", "", certificate(bundle), "jane", "system:authenticated"},
		{"certificate of another cluster", "", certificate(stranger), "", ""},
		{"what the API server shows to agents", "", certificateOf(bundle, pki.KubeletClientUser), "", ""},
		{"service account", w.issue(t, Binding{}), nil, "system:serviceaccount:ns:robot", "system:authenticated"},
		{"bootstrap token", token.Bootstrap(), nil, "system:bootstrap:" + token.ID, "system:bootstrappers"},
		{"wrong bootstrap token", token.ID + ".0000000000000000", nil, "", ""},
		{"garbage", "garbage", nil, "", ""},
	}
	for _, c := range cases {
		r := httptest.NewRequest(http.MethodGet, "https://api/", nil)
		r.TLS = &tls.ConnectionState{}
		if c.cert != nil {
			r.TLS.PeerCertificates = []*x509.Certificate{c.cert}
		}
		if c.bearer != "" {
			r.Header.Set("Authorization", "Bearer "+c.bearer)
		}
		response, ok, err := a.Request.AuthenticateRequest(r)
		if c.user == "" {
			if ok || err == nil {
				t.Errorf("%s: accepted as %v", c.name, response)
			}
			continue
		}
		if err != nil || !ok || response.User.GetName() != c.user || !strings.Contains(strings.Join(response.User.GetGroups(), ","), c.group) {
			t.Errorf("%s: %v %v", c.name, response, err)
		}
	}
}
