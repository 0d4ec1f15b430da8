package loops

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testenv"
)

func claimGated(name string, claims ...corev1.PodResourceClaim) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "everynode.io/demo:v1"}}
	p.Spec.ResourceClaims = claims
	p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "test.example.com/wait"}}
	return p
}

func wishes() resourcev1.ResourceClaimSpec {
	return resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "c"}}}}}
}

// A pod gets the claim of its template, also of one that is made after the pod, and after a restart of the controller; the claim goes
// with the pod. A claim that pods use gives back its devices after the last one.
func TestClaimsOfPods(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, testenv.SimulatedNodes(1))
	ctx := t.Context()
	pods, api := env.Client.CoreV1().Pods("default"), env.Client.ResourceV1()
	claims := api.ResourceClaims("default")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	env.Eventually("the account of the namespace", func(ctx context.Context) error {
		_, err := env.Client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	withoutPods(ctx, t, env)
	_, err := pods.Create(ctx, claimGated("p", corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("t")}), metav1.CreateOptions{})
	must(err)
	env.Eventually("an event that the template is missing", func(ctx context.Context) error {
		events, err := env.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedResourceClaimCreation"})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("there is none")
		}
		return err
	})
	_, err = api.ResourceClaimTemplates("default").Create(ctx, &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"},
		Spec: resourcev1.ResourceClaimTemplateSpec{Spec: wishes()}}, metav1.CreateOptions{})
	must(err)
	var name string
	env.Eventually("the pod names its claim", func(ctx context.Context) error {
		pod, err := pods.Get(ctx, "p", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := pod.Status.ResourceClaimStatuses; len(s) != 1 || s[0].ResourceClaimName == nil {
			return fmt.Errorf("its status says %v", s)
		}
		name = *pod.Status.ResourceClaimStatuses[0].ResourceClaimName
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err == nil && !metav1.IsControlledBy(claim, pod) {
			err = fmt.Errorf("its owners are %v", claim.OwnerReferences)
		}
		return err
	})
	must(claims.Delete(ctx, name, metav1.DeleteOptions{}))
	env.Eventually("the claim is made again", func(ctx context.Context) error {
		_, err := claims.Get(ctx, name, metav1.GetOptions{})
		return err
	})

	bindTo(ctx, t, env, name)
	env.Restart()
	pods, claims = env.Client.CoreV1().Pods("default"), env.Client.ResourceV1().ResourceClaims("default")
	must(pods.Delete(ctx, "p", metav1.DeleteOptions{}))
	env.Eventually("the claim goes with its pod", func(ctx context.Context) error {
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %+v, %w", claim, err)
		}
		return nil
	})

	shared := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Spec: wishes()}
	_, err = claims.Create(ctx, shared, metav1.CreateOptions{})
	must(err)
	_, err = pods.Create(ctx, claimGated("user", corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("shared")}), metav1.CreateOptions{})
	must(err)
	bindTo(ctx, t, env, "shared", "user")
	must(claims.Delete(ctx, "shared", metav1.DeleteOptions{}))
	must(pods.Delete(ctx, "user", metav1.DeleteOptions{}))
	env.Eventually("a claim that was deleted goes after its last user", func(ctx context.Context) error {
		if _, err := claims.Get(ctx, "shared", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	anotherHangs(ctx, t, env)
}

// withoutPods: a claim that was given devices goes when it is deleted, also where no pod ever had a claim.
func withoutPods(ctx context.Context, t *testing.T, env *testenv.Env) {
	t.Helper()
	claims := env.Client.ResourceV1().ResourceClaims("default")
	alone := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "alone"}, Spec: wishes()}
	if _, err := claims.Create(ctx, alone, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bindTo(ctx, t, env, "alone")
	if err := claims.Delete(ctx, "alone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("a claim that no pod uses goes", func(ctx context.Context) error {
		if _, err := claims.Get(ctx, "alone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// anotherHangs: while a webhook keeps the claim of one pod waiting, another pod gets its own.
func anotherHangs(ctx context.Context, t *testing.T, env *testenv.Env) {
	t.Helper()
	asked, answered := make(chan struct{}), make(chan struct{})
	var once, twice sync.Once
	hook := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // Only then it shows that the caller has gone.
		once.Do(func() { close(asked) })
		<-r.Context().Done()
		twice.Do(func() { close(answered) })
	}))
	t.Cleanup(func() { hook.CloseClientConnections(); hook.Close() })
	ignore, none, seconds := admissionregistrationv1.Ignore, admissionregistrationv1.SideEffectClassNone, int32(30)
	hooks := env.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	if _, err := hooks.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "slow.example.com", FailurePolicy: &ignore, SideEffects: &none, TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionregistrationv1.WebhookClientConfig{
			URL: &hook.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
		},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"hangs": "yes"}},
		Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{"resource.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"resourceclaims"}}}},
	}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	slow := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "slow"}, Spec: resourcev1.ResourceClaimTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"hangs": "yes"}}, Spec: wishes()}}
	if _, err := env.Client.ResourceV1().ResourceClaimTemplates("default").Create(ctx, slow, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n := 0
	env.Eventually("the webhook is asked", func(context.Context) error {
		n++ // A server may not know of the webhook yet.
		if _, err := env.Client.CoreV1().Pods("default").Create(ctx, claimGated(fmt.Sprintf("slow-%d", n), corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("slow")}), metav1.CreateOptions{}); err != nil {
			return err
		}
		select {
		case <-asked:
			return nil
		case <-time.After(time.Second):
			return errors.New("it is not")
		}
	})
	if _, err := env.Client.CoreV1().Pods("default").Create(ctx, claimGated("quick", corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("t")}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("a pod has its claim while another's hangs", func(ctx context.Context) error {
		pod, err := env.Client.CoreV1().Pods("default").Get(ctx, "quick", metav1.GetOptions{})
		if err == nil && len(pod.Status.ResourceClaimStatuses) == 0 {
			err = errors.New("it has none")
		}
		return err
	})
	select {
	case <-answered:
		t.Error("a pod had to wait until the claim of another was made")
	default:
	}
}

// bindTo does with a claim what a scheduler does: it protects it, and gives it a device and users.
func bindTo(ctx context.Context, t *testing.T, env *testenv.Env, name string, users ...string) {
	t.Helper()
	claims := env.Client.ResourceV1().ResourceClaims("default")
	env.Eventually("claim "+name+" is bound", func(context.Context) error {
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		claim.Finalizers = []string{resourcev1.Finalizer}
		if claim, err = claims.Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return err
		}
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
			{Request: "r", Driver: "d.example.com", Pool: "n", Device: "gpu-0"}}}}
		for _, user := range users {
			pod, err := env.Client.CoreV1().Pods("default").Get(ctx, user, metav1.GetOptions{})
			if err != nil {
				return err
			}
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: user, UID: pod.UID})
		}
		_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		return err
	})
}
