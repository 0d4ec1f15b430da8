package loops

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// slowBindings has each binding wait from when it was decided until it may go on. It returns what tells of pods that
// wait, and what lets them go.
func (j *joining) slowBindings() (waits <-chan string, goOn func()) {
	j.t.Helper()
	asked, release := make(chan string, 100), make(chan struct{})
	var end sync.Once
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case asked <- review.Request.Name:
		default: // it told of enough
		}
		<-release
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(review); err != nil {
			j.t.Logf("answer of the webhook: %v", err)
		}
	}))
	goOn = func() { end.Do(func() { close(release) }) }
	j.t.Cleanup(func() { goOn(); hook.Close() })
	fail, none, seconds := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, int32(30)
	_, err := j.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(j.t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "slow"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "slow.example.com", FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &seconds,
				AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &hook.URL,
					CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{"CREATE"},
					Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
						Resources: []string{"pods/binding"}}}},
			}}}, metav1.CreateOptions{})
	if err != nil {
		j.t.Fatal(err)
	}
	return asked, goOn
}

// A pod whose node was open when it was chosen, and was deleted and made again, closed, before the pod was bound, is
// not bound to the new node before that opens, and then at once.
func TestANodeThatIsMadeAgainIsClosedToOldDecisions(t *testing.T) {
	t.Parallel()
	j := startJoining(t)
	pods := j.Client.CoreV1().Pods("default")
	j.join("node-1") // before the NodeStartup: it is open
	waits, goOn := j.slowBindings()
	name, n := "", 0
	j.Eventually("a binding waits", func(ctx context.Context) error {
		n++ // A server may not know of the webhook yet.
		_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("work-%d", n)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		select {
		case name = <-waits:
			return nil
		case <-time.After(time.Second):
			return errors.New("none does")
		}
	})
	j.sick["slow/node-1"] = true
	j.daemonSet("slow")
	j.startup("default", groupOf("slow"))
	if err := j.Client.CoreV1().Nodes().Delete(t.Context(), "node-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	j.join("node-1")
	j.gate("node-1", "default_1")
	goOn()
	// It says so when the binding was refused, and the pod was tried again.
	j.Eventually("the pod waits for the node to open", func(ctx context.Context) error {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if p.Spec.NodeName != "" {
			t.Fatalf("%s is bound to a closed node", name)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, "untolerated taint") {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", p.Status.Conditions)
	})
	j.Eventually("the daemon has its node", func(context.Context) error {
		for _, p := range j.podsOn("node-1") {
			if p.Labels["app"] == "slow" {
				return nil
			}
		}
		return errors.New("it has not")
	})
	j.heal("slow", "node-1")
	j.gate("node-1", "")
	j.Eventually("the pod has its node", func(ctx context.Context) error {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err == nil && p.Spec.NodeName != "node-1" {
			err = errors.New("it has not")
		}
		return err
	})
}
