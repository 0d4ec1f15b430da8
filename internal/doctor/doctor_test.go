package doctor

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/doctor/diagnosis"
	"github.com/everynode/everynode/internal/testenv"
)

// A cluster is looked at as it is, and what is wrong with it is found.
func TestCluster(t *testing.T) {
	env := testenv.Start(t, testenv.SimulatedNodes(3))
	examine := func(config *rest.Config) (diagnosis.Cluster, string) {
		t.Helper()
		seen, err := Cluster(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		seen.Kubectl, seen.Program = "kubectl", "everynode"
		var b strings.Builder
		for _, f := range diagnosis.OfCluster(seen) {
			fmt.Fprintf(&b, "%s %s %s: %s\n", f.Severity, f.Check, f.Subject, f.Message)
		}
		return seen, b.String()
	}
	env.Eventually("a new cluster is well", func(context.Context) error {
		seen, text := examine(env.Config)
		if len(seen.Nodes) != 3 || len(seen.Leases) != 3 || seen.ServerNow.IsZero() || seen.Version == "" {
			return fmt.Errorf("seen are %d nodes, %d leases, the time %s and the version %q", len(seen.Nodes),
				len(seen.Leases), seen.ServerNow, seen.Version)
		}
		if text != "" && !strings.Contains(text, "not ready") {
			t.Errorf("a new cluster has findings:\n%s", text)
		}
		if text != "" {
			return fmt.Errorf("findings: %s", text)
		}
		return nil
	})
	ctx := t.Context()
	const bad = `{"spec":{"unschedulable":true},"metadata":{"annotations":{"simulated.everynode.io/fault":"notReady"}}}`
	_, err := env.Client.CoreV1().Nodes().Patch(ctx, "sim-0002", types.MergePatchType, []byte(bad), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rule := admissionv1.Rule{APIGroups: []string{"x"}, APIVersions: []string{"v1"}, Resources: []string{"y"}}
	at := &admissionv1.ServiceReference{Namespace: "default", Name: "nowhere"}
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}
	hook.Webhooks = []admissionv1.ValidatingWebhook{{
		Name: "w.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionv1.SideEffectClassNone),
		ClientConfig: admissionv1.WebhookClientConfig{Service: at},
		Rules:        []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{"CREATE"}, Rule: rule}},
	}}
	_, err = env.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, hook,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	env.Eventually("what is wrong is found", func(context.Context) error {
		_, text := examine(env.Config)
		for _, want := range []string{
			"Problem nodes node/sim-0002: 1 node says that it is not ready",
			"Warning nodes node/sim-0002: 1 node takes no new pods",
			"Problem webhooks validatingwebhookconfigurations/gone: the webhook w.example.com is to be " +
				"asked at the Service default/nowhere, which does not exist",
		} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("%q is not found in\n%s", want, text)
			}
		}
		return nil
	})

	// Who may see nodes and nothing else is told what is hidden.
	role := &authorizationv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "looker"}}
	role.Rules = []authorizationv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"},
		Verbs: []string{"list"}}}
	binding := &authorizationv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "looker"},
		RoleRef:  authorizationv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "looker"},
		Subjects: []authorizationv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "looker"}}}
	if _, err := env.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	limited := rest.CopyConfig(env.Config)
	limited.Impersonate = rest.ImpersonationConfig{UserName: "looker", Groups: []string{"system:authenticated"}}
	env.Eventually("what may not be read is named", func(context.Context) error {
		seen, _ := examine(limited)
		const want = "[leases daemonsets daemonsetrollouts rolloutpolicies nodestartups pods events daemonsetvariants " +
			"servicecidrs ipaddresses validatingwebhookconfigurations mutatingwebhookconfigurations " +
			"mutatingadmissionpolicies apiservices]"
		if fmt.Sprint(seen.Hidden) != want || len(seen.Nodes) != 3 {
			return fmt.Errorf("hidden are %v, and %d nodes are seen; want %s", seen.Hidden, len(seen.Nodes), want)
		}
		return nil
	})

	env.Stop()
	if seen, text := examine(env.Config); seen.Unreachable == "" || !strings.Contains(text, "the API does not answer") {
		t.Errorf("of a cluster that is away is said: %q, %s", seen.Unreachable, text)
	}
}

func TestWebhooksThatCouldNotBeAsked(t *testing.T) {
	const metrics = `# HELP apiserver_admission_webhook_fail_open_count x
apiserver_admission_webhook_fail_open_count{name="a.example.com",type="validating"} 2
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="a.example.com",operation="CREATE",rejection_code="0",type="validating"} 3
apiserver_admission_webhook_rejection_count{error_type="no_error",name="b.example.com",operation="CREATE",rejection_code="403",type="validating"} 7
apiserver_request_total{name="a.example.com"} 9
`
	if got := fmt.Sprint(webhookFailures(metrics)); got != "map[a.example.com:5]" {
		t.Error(got)
	}
}

// This machine can be looked at, whatever it is.
func TestMachine(t *testing.T) {
	dir := t.TempDir()
	m := Machine(dir, time.Now())
	if m.Server || m.Runs || len(m.Disks) == 0 || m.Disks[0].Path != dir || m.Disks[0].Bytes == 0 ||
		len(m.Tools) < 4 || m.Cgroups.Version == 0 {
		t.Errorf("this machine is seen as %+v", m)
	}
	if err := os.WriteFile(filepath.Join(dir, "version.json"), []byte(`{"data":99,"everynode":"v9"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	m = Machine(dir, time.Now())
	if m.Program.WroteData != 99 || !m.Server || m.CertificatesProblem == "" {
		t.Errorf("a folder of a newer program, without keys, is seen as %+v, server %v, %q", m.Program,
			m.Server, m.CertificatesProblem)
	}
}

func TestPortsAreFoundWithTheirHolder(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	number := l.Addr().(*net.TCPAddr).Port
	if p := port(number, "x", "--y"); !p.Taken || p.PID != os.Getpid() || p.By == "" {
		t.Errorf("our own port is seen as %+v, want process %d", p, os.Getpid())
	}
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:192B 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 11 1
   1: 0100007F:192B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 22 1
`
	if got := listener(table, 6443); got != "22" {
		t.Errorf("the listener at 6443 has the socket %q, want 22", got)
	}
	if got := listener(table, 80); got != "" {
		t.Errorf("the listener at 80 has the socket %q, want none", got)
	}
}

func TestCgroups(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	for _, path := range []string{one + "/cpu,cpuacct", one + "/memory"} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(two+"/cgroup.controllers", []byte("cpu memory pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		one: "{1 [cpu cpuacct memory]}", two: "{2 [cpu memory pids]}", "/nowhere": "{0 []}", t.TempDir(): "{0 []}",
	} {
		if got := fmt.Sprint(cgroups(path)); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

func TestAuthoritiesThatAreNone(t *testing.T) {
	for bundle, want := range map[string]string{
		"text": "there is no certificate in it",
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": "malformed",
	} {
		if _, problem := authority([]byte(bundle)); !strings.Contains(problem, want) {
			t.Errorf("%q: got %q, want %q", bundle, problem, want)
		}
	}
}
