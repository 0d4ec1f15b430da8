package webhook_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/certs"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/beside/webhook"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/testenv"
)

const maker = "system:serviceaccount:kube-system:daemon-set-controller"

// TestInjectorsBeforeAndBehind has webhooks of others add a container to a pod that gets another revision: who is asked
// behind us, or before us and again, is heard; what those add who are asked before us alone is taken off.
func TestInjectorsBeforeAndBehind(t *testing.T) {
	env := testenv.Start(t)
	objects, template := twoRevisions(t)
	at, trusted := answers(t, objects)
	ours := registration.Webhooks(registration.Options{Maker: maker, Account: "us", Fail: true, URL: at, Trusted: trusted})
	register(t, env, ours)
	const never, again = admission.NeverReinvocationPolicy, admission.IfNeededReinvocationPolicy
	injects(t, env, "000-alone", never)
	injects(t, env, "000-before", again)
	injects(t, env, "behind", never)

	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "makes-pods"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: maker}}}
	_, err := env.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	must(t, err)
	config := rest.CopyConfig(env.Config)
	config.Impersonate.UserName = maker
	as, err := kubernetes.NewForConfig(config)
	must(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "agent-",
		OwnerReferences: controlled,
		Labels:          map[string]string{appsv1.ControllerRevisionHashLabelKey: "new", "app": "agent"}}, Spec: template}
	pod.Spec.Affinity = placement.PinToNode(nil, "node-1")
	env.Eventually("all webhooks are asked", func(ctx context.Context) error {
		got, err := as.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		var has []string
		for _, c := range got.Spec.Containers {
			has = append(has, c.Name+" "+c.Image)
		}
		slices.Sort(has)
		if is := strings.Join(has, ", "); is != "000-before added, agent agent:old, behind added" {
			return fmt.Errorf("the pod has %s", is)
		}
		return nil
	})

	nobody := registration.Webhooks(registration.Options{Maker: maker, Fail: true, URL: "https://127.0.0.1:1"})
	nobody.Name = "nobody"
	register(t, env, nobody)
	env.Eventually("a pod is refused about which nobody answers", func(ctx context.Context) error {
		_, err := as.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return fmt.Errorf("the answer is %v", err)
		}
		return nil
	})
	pod.Spec.HostNetwork = true
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "old" // it stays as it is made
	_, err = as.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Errorf("a pod in its node's network, which networks may depend on: %v", err)
	}
}

// answers is where our webhook answers by what an API has, and by whom it is known.
func answers(t *testing.T, objects map[string]any) (at string, trusted []byte) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		obj, is := objects[r.URL.Path]
		if !is {
			w.WriteHeader(http.StatusNotFound)
		}
		_ = json.NewEncoder(w).Encode(obj) // whoever asked may have gone
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	must(t, err)
	own, err := everynode.NewForConfig(&rest.Config{Host: server.URL})
	must(t, err)
	s, err := webhook.New(webhook.Config{Client: client, Own: own, Account: "us", Maker: maker, Fail: true})
	must(t, err)
	held, err := certs.Renew(nil, []string{"127.0.0.1"}, time.Now(), rand.Reader)
	must(t, err)
	pair, err := certs.Serving(held)
	must(t, err)
	s.Use(pair, time.Now())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		err := <-done
		if err != nil {
			t.Error(err)
		}
	})
	return "https://" + l.Addr().String(), certs.Trusted(held)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// controlled says that the DaemonSet controls an object.
var controlled = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "1",
	Controller: ptr.To(true)}}

// twoRevisions is an API with a DaemonSet whose newest template has failed, and that template.
func twoRevisions(t *testing.T) (map[string]any, corev1.PodSpec) {
	t.Helper()
	var revisions []appsv1.ControllerRevision
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent", UID: "1",
		Annotations: map[string]string{admit.UpdateStrategy: `{"type":"RollingUpdate"}`}}}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	ds.Spec.Template.Labels = map[string]string{"app": "agent"}
	for _, hash := range []string{"old", "new"} {
		ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "agent", Image: "agent:" + hash}}
		raw, err := history.Patch(&ds.Spec.Template)
		if err != nil {
			t.Fatal(err)
		}
		revisions = append(revisions, appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: raw},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent-" + hash, OwnerReferences: controlled,
				UID: types.UID("of " + hash), Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}}})
	}
	rollout := &v1alpha1.DaemonSetRollout{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent",
		Labels: map[string]string{rollouts.OwnerLabel: "1"}}}
	rollout.Status.StableRevision, rollout.Status.TargetRevision = "old", "new"
	rollout.Status.FailedRevisions = []v1alpha1.FailedRevision{{Revision: "new", Time: metav1.NewTime(time.Unix(1, 0))}}
	return map[string]any{
		"/apis/apps/v1/namespaces/default/daemonsets/agent":                      ds,
		"/apis/everynode.io/v1alpha1/namespaces/default/daemonsetrollouts/agent": rollout,

		"/apis/apps/v1/namespaces/default/controllerrevisions": &appsv1.ControllerRevisionList{Items: revisions},
	}, *ds.Spec.Template.Spec.DeepCopy()
}

func register(t *testing.T, env *testenv.Env, c *admission.MutatingWebhookConfiguration) {
	t.Helper()
	kinds := env.Client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := kinds.Create(t.Context(), c, metav1.CreateOptions{})
	must(t, err)
}

// injects has a webhook add a container of its name to each new pod that is without it.
func injects(t *testing.T, env *testenv.Env, name string, again admission.ReinvocationPolicyType) {
	t.Helper()
	hook := registration.Webhooks(registration.Options{Maker: maker, Fail: true, URL: "https://there"}).Webhooks[0]
	hook.Name, hook.ReinvocationPolicy = strings.Trim(name, "0-")+".example.com", &again
	c := &admission.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admission.MutatingWebhook{hook}}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		var pod corev1.Pod
		err := json.NewDecoder(r.Body).Decode(&review)
		if err == nil {
			err = json.Unmarshal(review.Request.Object.Raw, &pod)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		review.Request = nil
		if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == name }) {
			review.Response.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
			review.Response.Patch = fmt.Appendf(nil,
				`[{"op":"add","path":"/spec/containers/-","value":{"name":%q,"image":"added"}}]`, name)
		}
		_ = json.NewEncoder(w).Encode(review) // the API server may have gone
	}))
	t.Cleanup(server.Close)
	c.Webhooks[0].ClientConfig = admission.WebhookClientConfig{URL: ptr.To(server.URL),
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	register(t, env, c)
}
