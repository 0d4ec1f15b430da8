package beside

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/everynode/everynode/internal/beside/certs"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/beside/webhook"
)

func newGuest(t *testing.T, client *fake.Clientset) *Guest {
	t.Helper()
	w, err := webhook.New(webhook.Config{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	return &Guest{client: client, webhook: w, account: "us", cfg: Config{Options: Options{
		Namespace: "kube-system", Service: "everynode-webhook", Secret: "everynode-webhook", Maker: "them",
	}}}
}

// TestTwoReplicasRaceForTheSecret: the first write counts, and both serve what is trusted.
func TestTwoReplicasRaceForTheSecret(t *testing.T) {
	for name, start := range map[string]*corev1.Secret{
		"none": nil, "an empty one": {}, "a mark alone": {Data: map[string][]byte{leaving: []byte("2026-01-01T00:00:00Z")}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			if start != nil {
				start.Namespace, start.Name = "kube-system", "everynode-webhook"
				client = fake.NewClientset(start)
			}
			one, two := newGuest(t, client), newGuest(t, client)
			names, err := two.names()
			if err != nil {
				t.Fatal(err)
			}
			held := map[string][]byte{}
			if start != nil {
				held = start.Data
			}
			first, err := certs.Renew(held, names, time.Now(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
			raced := false
			race := func(verb string, lost error, write func(*corev1.Secret) error) {
				client.PrependReactor(verb, "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
					if raced {
						return false, nil, nil
					}
					raced = true
					return true, nil, errors.Join(lost, write(&corev1.Secret{Data: first, ObjectMeta: metav1.ObjectMeta{
						Namespace: "kube-system", Name: "everynode-webhook"}}))
				})
			}
			race("create", apierrors.NewAlreadyExists(secrets.GroupResource(), "everynode-webhook"),
				func(s *corev1.Secret) error { return client.Tracker().Create(secrets, s, s.Namespace) })
			race("update", apierrors.NewConflict(secrets.GroupResource(), "everynode-webhook", errors.New("it was written")),
				func(s *corev1.Secret) error { return client.Tracker().Update(secrets, s, s.Namespace) })
			_, err = one.certificate(t.Context())
			if err == nil {
				t.Fatal("the one that comes last does not notice")
			}
			got, err := one.certificate(t.Context())
			if err != nil || !bytes.Equal(got["tls.crt"], first["tls.crt"]) || !bytes.Equal(certs.Trusted(got), certs.Trusted(first)) {
				t.Errorf("the two have different certificates (%v)", err)
			}
			for _, g := range []*Guest{one, two} {
				err = g.serveWith(got)
				if err != nil || !g.webhook.Ready() {
					t.Errorf("it cannot serve: %v", err)
				}
			}
		})
	}
}

// TestABrokenSecretStays: what cannot be read is reported, and not replaced.
func TestABrokenSecretStays(t *testing.T) {
	broken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "everynode-webhook"},
		Data: map[string][]byte{"ca.crt": []byte("no certificate")}}
	client := fake.NewClientset(broken.DeepCopy())
	_, err := newGuest(t, client).certificate(t.Context())
	if err == nil || !strings.Contains(err.Error(), "delete the Secret to have another made") {
		t.Errorf("it says %v", err)
	}
	for _, a := range client.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("it does %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// TestTheRegistrationIsRestored: what others change of it is put right, what they add beside it stays, and where
// nothing differs nothing is written.
func TestTheRegistrationIsRestored(t *testing.T) {
	client := fake.NewClientset()
	g := newGuest(t, client)
	held, err := g.certificate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	register := func() (writes int) {
		t.Helper()
		client.ClearActions()
		err := g.register(t.Context(), held)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range client.Actions() {
			if a.GetVerb() != "get" {
				writes++
			}
		}
		return writes
	}
	if n := register(); n != 7 {
		t.Errorf("%d objects are made, want 7", n)
	}
	if n := register(); n != 0 {
		t.Errorf("%d writes change nothing", n)
	}
	hooks := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	have, err := hooks.Get(t.Context(), registration.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have.Labels = map[string]string{"team": "platform"}
	have.Webhooks[0].ClientConfig.CABundle = []byte("theirs")
	have.Webhooks = have.Webhooks[:1]
	_, err = hooks.Update(t.Context(), have, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	err = policies.Delete(t.Context(), registration.Name+"-made", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := register(); n != 2 {
		t.Errorf("%d writes put two objects right", n)
	}
	have, err = hooks.Get(t.Context(), registration.Name, metav1.GetOptions{})
	if err != nil || len(have.Webhooks) != 4 || have.Labels["team"] != "platform" ||
		!bytes.Equal(have.Webhooks[0].ClientConfig.CABundle, certs.Trusted(held)) {
		t.Errorf("it is %+v (%v)", have, err)
	}
}

// TestOldKubernetes: what is older than all that this was tried on is refused.
func TestOldKubernetes(t *testing.T) {
	for text, good := range map[string]bool{
		"v1.33.0": true, "v1.33.4-gke.100": true, "v1.34.1-eks-1+abc": true, "v2.0.0": true, "v1.32.9": false, "v0.99.0": false, "": false,
		"devel": false,
	} {
		err := newEnough(&version.Info{GitVersion: text})
		if (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("it does not say which version: %v", err)
		}
	}
}

// TestWhoLeaves: for ten minutes after the mark, which may be of any form.
func TestWhoLeaves(t *testing.T) {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	for mark, leaves := range map[string]bool{
		"2026-03-02T09:55:00Z": true, "2026-03-02T09:45:00Z": false, "": false, "yes": false, "2026-03-02T09:55:00+00:00": true,
	} {
		if got := isLeaving(map[string][]byte{leaving: []byte(mark)}, now); got != leaves {
			t.Errorf("with the mark %q somebody leaves: %v", mark, got)
		}
	}
	if isLeaving(nil, now) {
		t.Error("without a mark somebody leaves")
	}
}
