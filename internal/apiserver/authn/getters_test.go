package authn

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
)

func TestWhatCannotBeANameIsNotFound(t *testing.T) {
	// No server is asked: the client itself would fail.
	client, err := kubernetes.NewForConfig(&restclient.Config{Host: "https://everynode.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	g := ClientGetters(client)
	for _, name := range []string{"", "..", "a/b", "%"} {
		_, secret := g.GetSecret(t.Context(), "ns", name)
		_, account := g.GetServiceAccount(t.Context(), "ns", name)
		_, pod := g.GetPod(t.Context(), "ns", name)
		_, node := g.GetNode(t.Context(), name)
		for what, err := range map[string]error{"secret": secret, "account": account, "pod": pod, "node": node} {
			if !apierrors.IsNotFound(err) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
	if _, err := g.GetPod(t.Context(), "..", "a"); !apierrors.IsNotFound(err) {
		t.Errorf("namespace ..: %v", err)
	}
}
