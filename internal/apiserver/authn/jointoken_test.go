package authn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
)

const hash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseJoinToken(t *testing.T) {
	cases := map[string]bool{
		"abcdef.0123456789abcdef":             true,
		"abcdef.0123456789abcdef." + hash:     true,
		"":                                    false,
		"abcdef":                              false,
		"abcde.0123456789abcdef":              false,
		"abcdef.0123456789abcde":              false,
		"ABCDEF.0123456789abcdef":             false,
		"abcdef.0123456789abcdef.":            false,
		"abcdef.0123456789abcdef." + hash[1:]: false,
		"abcdef.0123456789abcdef." + strings.ToUpper(hash): false,
		"abcdef.0123456789abcdef." + hash + ".x":           false,
		" abcdef.0123456789abcdef":                         false,
		"abcdef.0123456789abcde\n":                         false,
		"абвгде.0123456789abcdef":                          false,
	}
	for text, ok := range cases {
		token, err := ParseJoinToken(text)
		if (err == nil) != ok {
			t.Errorf("%q: %v, want accepted %v", text, err, ok)
		}
		if err == nil && token.Text() != text {
			t.Errorf("%q comes back as %q", text, token.Text())
		}
		if err != nil && len(text) > 16 && strings.Contains(err.Error(), "0123456789") {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}

func FuzzParseJoinToken(f *testing.F) {
	for _, seed := range []string{"abcdef.0123456789abcdef", "abcdef.0123456789abcdef." + hash, "..", "a.b.c", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseJoinToken(text)
		if err != nil {
			if !errors.Is(err, ErrMalformedToken) || token != (JoinToken{}) {
				t.Errorf("%q: %v, %v", text, token, err)
			}
			return
		}
		if token.Text() != text || len(token.ID) != 6 || len(token.Secret) != 16 {
			t.Errorf("%q was read as %#v", text, token)
		}
		if strings.Contains(fmt.Sprint(token), token.Secret) {
			t.Errorf("printing shows the secret")
		}
	})
}

func TestNewBootstrapTokenIsAccepted(t *testing.T) {
	secret, token, err := NewBootstrapToken(start, time.Hour, "for tests")
	if err != nil {
		t.Fatal(err)
	}
	if secret.Namespace != "kube-system" || secret.Name != "bootstrap-token-"+token.ID || secret.Type != "bootstrap.kubernetes.io/token" {
		t.Errorf("secret %s/%s %s", secret.Namespace, secret.Name, secret.Type)
	}
	token.CAHash = hash
	read, err := ParseJoinToken(token.Text())
	if err != nil || read != token {
		t.Fatalf("the text form is not read back: %v", err)
	}
	clock := clocktesting.NewFakePassiveClock(start)
	a := NewBootstrapTokens(ofClient{fake.NewClientset(secret)}, clock)
	response, ok, err := a.AuthenticateToken(t.Context(), read.Bootstrap())
	if !ok || err != nil || response.User.GetName() != "system:bootstrap:"+token.ID || strings.Join(response.User.GetGroups(), ",") != "system:bootstrappers" {
		t.Errorf("%v %v %v", response, ok, err)
	}
	if _, ok, _ := a.AuthenticateToken(t.Context(), read.Text()); ok {
		t.Error("the text with the hash is not a credential, but was accepted")
	}
	clock.SetTime(start.Add(time.Hour))
	if _, ok, _ := a.AuthenticateToken(t.Context(), read.Bootstrap()); ok {
		t.Error("accepted after its end")
	}
	_, second, _ := NewBootstrapToken(start, time.Hour, "")
	if second == token || second.Secret == token.Secret {
		t.Error("two tokens are the same")
	}
}

func TestBootstrapSecretChecks(t *testing.T) {
	sent := JoinToken{ID: "abcdef", Secret: "0123456789abcdef"}
	deleted := metav1.NewTime(start)
	cases := []struct {
		name   string
		change func(*corev1.Secret)
		groups string // empty: refused
	}{
		{"good", func(*corev1.Secret) {}, "system:bootstrappers"},
		{"no end", func(s *corev1.Secret) { delete(s.Data, "expiration") }, "system:bootstrappers"},
		{"extra groups", func(s *corev1.Secret) {
			s.Data["auth-extra-groups"] = []byte("system:bootstrappers:a,system:bootstrappers:b:c")
		}, "system:bootstrappers,system:bootstrappers:a,system:bootstrappers:b:c"},
		{"group of masters", func(s *corev1.Secret) { s.Data["auth-extra-groups"] = []byte("system:masters") }, ""},
		{"hidden group of masters", func(s *corev1.Secret) {
			s.Data["auth-extra-groups"] = []byte("system:bootstrappers:a\nsystem:masters")
		}, ""},
		{"wrong secret", func(s *corev1.Secret) { s.Data["token-secret"] = []byte("0123456789abcdeX") }, ""},
		{"no secret", func(s *corev1.Secret) { delete(s.Data, "token-secret") }, ""},
		{"longer secret", func(s *corev1.Secret) { s.Data["token-secret"] = []byte("0123456789abcdef0") }, ""},
		{"another id", func(s *corev1.Secret) { s.Data["token-id"] = []byte("fedcba") }, ""},
		{"another type", func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, ""},
		{"expired", func(s *corev1.Secret) { s.Data["expiration"] = []byte("2026-03-01T11:59:59Z") }, ""},
		{"unreadable end", func(s *corev1.Secret) { s.Data["expiration"] = []byte("tomorrow") }, ""},
		{"not for authentication", func(s *corev1.Secret) { delete(s.Data, "usage-bootstrap-authentication") }, ""},
		{"being deleted", func(s *corev1.Secret) { s.DeletionTimestamp = &deleted }, ""},
	}
	for _, c := range cases {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"}, Type: BootstrapSecretType,
			Data: map[string][]byte{
				"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"),
				"expiration": []byte("2026-03-02T00:00:00Z"), "usage-bootstrap-authentication": []byte("true"),
			},
		}
		c.change(secret)
		groups, err := checkBootstrapSecret(secret, sent, start)
		if strings.Join(groups, ",") != c.groups || (err == nil) != (c.groups != "") {
			t.Errorf("%s: %v, %v; want %q", c.name, groups, err, c.groups)
		}
		if err != nil && strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%s: the reason shows the secret", c.name)
		}
	}
}

// What is stored of a token for servers is no token, and one whose Secret gives it away is refused.
func TestServerTokens(t *testing.T) {
	secret, token, err := NewServerToken(start, time.Hour, "")
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range secret.Data {
		if strings.Contains(string(value), token.Secret) {
			t.Errorf("%s holds the token", key)
		}
	}
	groups, err := checkBootstrapSecret(secret, token, start)
	if err != nil || strings.Join(groups, ",") != "system:bootstrappers,system:bootstrappers:servers" {
		t.Errorf("the token gives %v, %v", groups, err)
	}
	if _, err := checkBootstrapSecret(secret, JoinToken{ID: token.ID, Secret: "0123456789abcdef"}, start); err == nil {
		t.Error("another secret is accepted")
	}
	sent := JoinToken{ID: token.ID, Secret: string(secret.Data["token-secret-sha256"])}
	if _, err := checkBootstrapSecret(secret, sent, start); err == nil {
		t.Error("the hash is accepted as the secret")
	}
	nodes := secret.DeepCopy()
	nodes.Data["auth-extra-groups"] = nil
	if _, err := checkBootstrapSecret(nodes, token, start); err == nil {
		t.Error("a token for nodes is accepted by its hash")
	}
	secret.Data["token-secret"] = []byte(token.Secret)
	if _, err := checkBootstrapSecret(secret, token, start); err == nil {
		t.Error("one that can be read in its Secret is accepted")
	}
}

func TestTokenID(t *testing.T) {
	for name, want := range map[string]string{
		"system:bootstrap:abcdef": "abcdef", "abcdef": "", "system:bootstrap:": "", "system:bootstrap:abcdefg": "", "jane": "", "": "",
	} {
		if got := TokenID(name); got != want {
			t.Errorf("%q is token %q, want %q", name, got, want)
		}
	}
}

type brokenSecrets struct{}

func (brokenSecrets) GetSecret(context.Context, string, string) (*corev1.Secret, error) {
	return nil, apierrors.NewInternalError(errors.New("disk"))
}

func TestBootstrapTokenThatCannotBeLookedUp(t *testing.T) {
	a := NewBootstrapTokens(brokenSecrets{}, clocktesting.NewFakePassiveClock(start))
	if _, ok, err := a.AuthenticateToken(t.Context(), "abcdef.0123456789abcdef"); ok || err == nil {
		t.Errorf("accepted %v, %v; want an error", ok, err)
	}
	if _, ok, err := a.AuthenticateToken(t.Context(), "a.jwt.token"); ok || err != nil {
		t.Errorf("a token of another kind: %v, %v; want left to others", ok, err)
	}
}
