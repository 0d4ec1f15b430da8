package servertokens

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/everynode/everynode/internal/apiserver/authn"
)

// joiners lets the user admin have servers join.
type joiners struct{}

func (joiners) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetUser().GetName() == "admin" && !a.IsResourceRequest() && a.GetVerb() == "post" && a.GetPath() == "/everynode/v1/servers" {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

func token(t *testing.T, groups string, change ...func(*corev1.Secret)) *corev1.Secret {
	t.Helper()
	s, _, err := authn.NewServerToken(time.Unix(0, 0), time.Hour, "")
	if err != nil {
		t.Fatal(err)
	}
	s.Data["token-secret-sha256"] = []byte("0123456789abcdef")
	s.Data["token-id"] = []byte("abcdef")
	s.Data["auth-extra-groups"] = []byte(groups)
	for _, c := range change {
		c(s)
	}
	return s
}

// Who may write Secrets does not get the cluster's keys by that.
func TestWhoMakesTokensForServers(t *testing.T) {
	const servers, refusal = "system:bootstrappers:servers", "gives all keys of the cluster"
	known := func(s *corev1.Secret) { s.Data["token-secret-sha256"] = []byte("fedcba9876543210") }
	plain := func(s *corev1.Secret) { s.Data["token-secret"] = []byte("fedcba9876543210") }
	longer := func(s *corev1.Secret) { delete(s.Data, "expiration") }
	labelled := func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} }
	opaque := func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }
	for _, c := range []struct {
		name, user string
		old, now   *corev1.Secret
		namespace  string
		want       string
	}{
		{"a token for servers", "writer", nil, token(t, servers), "kube-system", refusal},
		{"beside another group", "writer", nil, token(t, "system:bootstrappers:a, "+servers+" "), "kube-system", refusal},
		{"one for nodes becomes one", "writer", token(t, ""), token(t, servers), "kube-system", refusal},
		{"one gets a secret that is known", "writer", token(t, servers), token(t, servers, known), "kube-system", refusal},
		{"one is made good for ever", "writer", token(t, servers), token(t, servers, longer), "kube-system", refusal},
		{"another kind of Secret becomes one", "writer", token(t, servers, opaque), token(t, servers), "kube-system", refusal},
		{"one is labelled", "writer", token(t, servers), token(t, servers, labelled), "kube-system", ""},
		{"one becomes one for nodes", "writer", token(t, servers), token(t, ""), "kube-system", ""},
		{"a token for nodes", "writer", nil, token(t, ""), "kube-system", ""},
		{"another group", "writer", nil, token(t, servers+":not"), "kube-system", ""},
		{"where no token counts", "writer", nil, token(t, servers), "default", ""},
		{"what is no token", "writer", nil, token(t, servers, opaque), "kube-system", ""},
		{"one that can be read, by who may have servers join", "admin", nil, token(t, servers, plain), "kube-system", "must not hold the token itself"},
		{"who may have servers join", "admin", nil, token(t, servers), "kube-system", ""},
	} {
		var old runtime.Object
		operation := admission.Create
		if c.old != nil {
			old, operation = c.old, admission.Update
		}
		a := admission.NewAttributesRecord(c.now, old, corev1.SchemeGroupVersion.WithKind("Secret"), c.namespace, "bootstrap-token-abcdef",
			corev1.SchemeGroupVersion.WithResource("secrets"), "", operation, &metav1.CreateOptions{}, false, &user.DefaultInfo{Name: c.user})
		err := New(joiners{}).Validate(t.Context(), a, nil)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !apierrors.IsForbidden(err)) {
			t.Errorf("%s: the answer is %v, want %q", c.name, err, c.want)
		}
	}
}
