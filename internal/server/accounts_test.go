package server_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/server/config"
	"github.com/everynode/everynode/internal/testenv"
)

// audited lets a control plane record what the policy says, and returns the log's path.
func audited(t *testing.T, policy string) (change func(*config.Options), log string) {
	t.Helper()
	dir := t.TempDir()
	file, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(file, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\n"+policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(o *config.Options) {
		o.API.Audit.PolicyFile, o.API.Audit.LogOptions.Path = file, log
	}, log
}

// records reads an audit log.
func records(t *testing.T, log string) (out []auditv1.Event) {
	t.Helper()
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		out = append(out, e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// Each control loop writes under its own account, and the account's role allows
// all that the loop does, whichever way it goes.
func TestControlLoopsHaveTheRightsOfTheirRoles(t *testing.T) {
	t.Parallel()
	change, log := audited(t, "omitStages: [RequestReceived]\nrules: [{level: Metadata, verbs: [create, update, patch, delete, deletecollection]}, {level: Metadata, verbs: [get, list, watch]}]\n")
	env := testenv.Start(t, change, testenv.SimulatedNodes(3))
	aTokenEnds(t, env)
	everythingHappens(t, env)
	env.Stop()

	const account = "system:serviceaccount:kube-system:"
	wrote := map[string]bool{}
	for _, e := range records(t, log) {
		who := e.User.Username
		if who == "system:apiserver" && e.UserAgent == "everynode/in-process" {
			t.Errorf("%s %s came through the door as the server itself", e.Verb, e.RequestURI)
		}
		if !strings.HasPrefix(who, account) && !strings.HasPrefix(who, "system:kube-") || e.ResponseStatus == nil {
			continue
		}
		if e.ResponseStatus.Code == 403 && !strings.Contains(e.ResponseStatus.Message, "being terminated") {
			t.Errorf("%s may not %s %s: %s", who, e.Verb, e.RequestURI, e.ResponseStatus.Message)
		}
		if e.ResponseStatus.Code < 300 && e.Verb != "get" && e.Verb != "list" && e.Verb != "watch" {
			wrote[strings.TrimPrefix(who, account)] = true
		}
	}
	for _, want := range []string{
		"daemon-set-controller", "deployment-controller", "replicaset-controller", "disruption-controller", "endpointslice-controller",
		"endpoint-controller", "endpointslicemirroring-controller", "generic-garbage-collector", "namespace-controller", "node-controller",
		"service-account-controller", "root-ca-cert-publisher", "certificate-controller", "clusterrole-aggregation-controller",
		"taint-eviction-controller", "validatingadmissionpolicy-status-controller", "pod-garbage-collector", "token-cleaner", "node-simulator", "system:kube-scheduler",
	} {
		if !wrote[want] {
			t.Errorf("nothing was written as %s", want)
		}
	}
}

// aTokenEnds waits until a join token that has ended is removed. The loop looks when the
// control plane starts, and then once a minute.
func aTokenEnds(t *testing.T, env *testenv.Env) {
	t.Helper()
	secrets := func() typedcorev1.SecretInterface { return env.Client.CoreV1().Secrets("kube-system") }
	_, err := secrets().Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"}, Type: "bootstrap.kubernetes.io/token", StringData: map[string]string{
		"token-id": "abcdef", "token-secret": "0123456789abcdef", "expiration": time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "usage-bootstrap-authentication": "true",
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	env.Restart()
	env.Eventually("the ended token is gone", func(ctx context.Context) error {
		if _, err := secrets().Get(ctx, "bootstrap-token-abcdef", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("want NotFound, got %w", err)
		}
		return nil
	})
}

// everythingHappens gives every control loop something to do, and waits until it is done.
func everythingHappens(t *testing.T, env *testenv.Env) {
	ctx, c := t.Context(), env.Client
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	labels := map[string]string{"app": "x"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "demo:v1"}}}}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	must(c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "work"}}, metav1.CreateOptions{}))
	env.Eventually("the account of the namespace", func(ctx context.Context) error {
		_, err := c.CoreV1().ServiceAccounts("work").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	sets := c.AppsV1().DaemonSets("work")
	ds, err := sets.Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "ds"}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, metav1.CreateOptions{})
	must(ds, err)
	must(c.CoreV1().Services("work").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "svc"}, Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}))
	must(c.CoreV1().Services("work").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "outside"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}))
	must(c.CoreV1().Endpoints("work").Create(ctx, &corev1.Endpoints{ //nolint:staticcheck // What people still write.
		ObjectMeta: metav1.ObjectMeta{Name: "outside"},
		Subsets:    []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.7"}}, Ports: []corev1.EndpointPort{{Port: 80}}}}, //nolint:staticcheck // See above.
	}, metav1.CreateOptions{}))
	must(c.PolicyV1().PodDisruptionBudgets("work").Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "pdb"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector, MinAvailable: ptr.To(intstr.FromInt32(1))}}, metav1.CreateOptions{}))
	must(c.AppsV1().Deployments("work").Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: selector, Template: template}}, metav1.CreateOptions{}))
	must(c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "any"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "true"}},
		},
	}, metav1.CreateOptions{}))
	must(c.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "more-view", Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"things"}}},
	}, metav1.CreateOptions{}))
	requestCertificate(t, env)

	running := func(ctx context.Context) error {
		got, err := sets.Get(ctx, "ds", metav1.GetOptions{})
		if err == nil && (got.Status.NumberAvailable != 3 || got.Status.UpdatedNumberScheduled != 3 || got.Status.ObservedGeneration != got.Generation) {
			err = fmt.Errorf("the status is %+v", got.Status)
		}
		return err
	}
	env.Eventually("the DaemonSet runs", running)
	must(sets.Patch(ctx, "ds", types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"v":"2"}}}}}`), metav1.PatchOptions{}))
	env.Eventually("the DaemonSet is rolled out", running)
	must(c.AppsV1().Deployments("work").Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"v":"2"}}}}}`), metav1.PatchOptions{}))
	env.Eventually("the Deployment is rolled out", func(ctx context.Context) error {
		got, err := c.AppsV1().Deployments("work").Get(ctx, "web", metav1.GetOptions{})
		if err == nil && (got.Status.UpdatedReplicas != 2 || got.Status.AvailableReplicas != 2 || got.Status.Replicas != 2) {
			err = fmt.Errorf("the status is %+v", got.Status)
		}
		return err
	})
	gone := func(what string, get func(ctx context.Context) error) {
		t.Helper()
		env.Eventually(what+" is gone", func(ctx context.Context) error {
			if err := get(ctx); !apierrors.IsNotFound(err) {
				return fmt.Errorf("want NotFound, got %w", err)
			}
			return nil
		})
	}
	// A pod that may not stay on its node, and one whose node never was.
	pod := func(name, node string) {
		must(c.CoreV1().Pods("work").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node, Containers: template.Spec.Containers}}, metav1.CreateOptions{}))
	}
	podGone := func(name string) {
		gone("the pod "+name, func(ctx context.Context) error {
			_, err := c.CoreV1().Pods("work").Get(ctx, name, metav1.GetOptions{})
			return err
		})
	}
	nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	must(nodes, err)
	node := nodes.Items[0].Name
	pod("evicted", node)
	must(c.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, []byte(`{"spec":{"taints":[{"key":"out","effect":"NoExecute"}]}}`), metav1.PatchOptions{}))
	podGone("evicted")
	must(c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "short-lived"}}, metav1.CreateOptions{}))
	pod("stranded", "short-lived")
	must(nil, c.CoreV1().Nodes().Delete(ctx, "short-lived", metav1.DeleteOptions{}))
	podGone("stranded")

	foreground := metav1.DeletePropagationForeground
	must(nil, c.AppsV1().Deployments("work").Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	gone("the Deployment", func(ctx context.Context) error {
		_, err := c.AppsV1().Deployments("work").Get(ctx, "web", metav1.GetOptions{})
		return err
	})
	orphan := metav1.DeletePropagationOrphan
	must(nil, sets.Delete(ctx, "ds", metav1.DeleteOptions{PropagationPolicy: &orphan}))
	gone("the DaemonSet", func(ctx context.Context) error { _, err := sets.Get(ctx, "ds", metav1.GetOptions{}); return err })
	must(nil, c.CoreV1().Namespaces().Delete(ctx, "work", metav1.DeleteOptions{}))
	gone("the namespace", func(ctx context.Context) error {
		_, err := c.CoreV1().Namespaces().Get(ctx, "work", metav1.GetOptions{})
		return err
	})
}

// requestCertificate asks for a certificate of a client, approves it and waits for it.
func requestCertificate(t *testing.T, env *testenv.Env) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	requests := env.Client.CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(t.Context(), &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "jane"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
		SignerName: certificatesv1.KubeAPIServerClientSignerName, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"})
	if _, err := requests.UpdateApproval(t.Context(), "jane", csr, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	env.Eventually("the certificate is signed", func(ctx context.Context) error {
		csr, err := requests.Get(ctx, "jane", metav1.GetOptions{})
		if err == nil && len(csr.Status.Certificate) == 0 {
			err = fmt.Errorf("the status is %+v", csr.Status)
		}
		return err
	})
}
