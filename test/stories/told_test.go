package stories

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	within "github.com/everynode/everynode/internal/testenv/eventually"
	"github.com/everynode/everynode/internal/testenv/needs"
)

// marker is like nothing else; what the Secret holds begins with it.
const marker = "quux-frobnicate-90125"

// withSecret is a DaemonSet that reads a Secret, under a policy that makes it a part of revisions.
const withSecret = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: content, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "everynode:content"}
subjects: [{kind: ServiceAccount, namespace: kube-system, name: daemon-set-controller}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: content-secrets, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "everynode:content-secrets"}
subjects: [{kind: ServiceAccount, namespace: kube-system, name: daemon-set-controller}]
---
apiVersion: everynode.io/v1alpha1
kind: RolloutPolicy
metadata: {name: careful, namespace: default}
spec:
  waves: [{name: canary, count: 1, approval: Manual}]
  content: {secrets: Referenced, settle: 1s}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs, namespace: default}
spec:
  selector: {matchLabels: {app: logs}}
  template:
    metadata: {labels: {app: logs}}
    spec:
      containers: [{name: c, image: "demo:v1", envFrom: [{secretRef: {name: agent}}]}]
      volumes: [{name: s, secret: {secretName: agent}}]
`

// secretOf is a manifest of the Secret.
func secretOf(value string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: agent, namespace: default}\n" +
		"stringData: {token: " + value + "}\n"
}

// told is a cluster whose server logs, records and audits as much as it can, into files.
type told struct {
	t                   *testing.T
	binary, dir, config string
	client              kubernetes.Interface
	// files are what the server writes.
	files []string
	stop  func()
}

func startTold(t *testing.T) *told {
	c := &told{t: t, binary: needs.Everynode(t, "../.."), dir: t.TempDir()}
	file := func(name string) string { return filepath.Join(c.dir, name) }
	const policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n" +
		"- {level: Metadata, resources: [{group: '', resources: [secrets]}]}\n- {level: RequestResponse}\n"
	c.write("audit.yaml", policy)
	c.files = []string{file("server.log"), file("decisions"), file("audit.log")}
	out, err := os.Create(c.files[0])
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	data := file("data")
	cmd := exec.Command(c.binary, "server", "--data-dir", data, "--listen", "127.0.0.1:0", "--simulated-nodes", "3",
		"-v", "5",
		"--record-decisions", c.files[1], "--audit-policy-file", file("audit.yaml"), "--audit-log-path", c.files[2])
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = out, out, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.stop = func() {
		c.stop = func() {}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with: %v", err)
		}
	}
	t.Cleanup(func() { c.stop() })
	c.config = filepath.Join(data, "kubeconfig")
	c.eventually("the nodes are there", func(ctx context.Context) error {
		config, err := clientcmd.BuildConfigFromFlags("", c.config)
		if err != nil {
			return err
		}
		c.client, err = kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && len(nodes.Items) < 3 {
			err = fmt.Errorf("%d are", len(nodes.Items))
		}
		return err
	})
	return c
}

func (c *told) eventually(what string, check func(context.Context) error) {
	c.t.Helper()
	within.Nil(c.t, patience, what, check)
}

func (c *told) write(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// run runs everynode, and returns all that it says.
func (c *told) run(args ...string) []byte {
	c.t.Helper()
	cmd := exec.Command(c.binary, args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "KUBECONFIG="+c.config, "HOME="+c.dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := runWithin(cmd)
	if changes := args[0] == "plan" && cmd.ProcessState.ExitCode() == 2; err != nil && !changes {
		c.t.Fatalf("everynode %s: %v\n%s", strings.Join(args, " "), err, &out)
	}
	return out.Bytes()
}

// status waits until the rollout's status has a text.
func (c *told) status(text string) {
	c.t.Helper()
	c.eventually("the rollout says "+text, func(context.Context) error {
		got := c.run("kubectl", "get", "dsr", "-o", "json")
		if !bytes.Contains(got, []byte(text)) {
			return fmt.Errorf("it says\n%s", got)
		}
		return nil
	})
}

// page starts the dashboard, and returns what reads from it.
func (c *told) page() (read func(method, path, body string) []byte) {
	c.t.Helper()
	cmd := exec.Command(c.binary, "dashboard", "--port", "0", "--no-browser")
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "KUBECONFIG="+c.config, "HOME="+c.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	address := regexp.MustCompile(`(http://127\.0\.0\.1:\d+)/#key=(\S+)`)
	var found []string
	for lines := bufio.NewScanner(out); found == nil && lines.Scan(); {
		found = address.FindStringSubmatch(lines.Text())
	}
	if found == nil {
		c.t.Fatal("the dashboard prints no address")
	}
	return func(method, path, body string) []byte {
		c.t.Helper()
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, found[1]+path, strings.NewReader(body))
		if err != nil {
			c.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+found[2])
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			c.t.Fatal(err)
		}
		defer answer.Body.Close()
		var raw []byte
		if answer.Header.Get("Content-Type") == "application/x-ndjson" {
			// It never ends. The first line of events holds all that there are; of the page's stream the second does.
			lines := bufio.NewReader(answer.Body)
			for n := 1 + strings.Count(path, "stream"); n > 0 || lines.Buffered() > 0; n-- {
				line, err := lines.ReadBytes('\n')
				if err != nil {
					c.t.Fatalf("%s: after %q: %v", path, raw, err)
				}
				raw = append(raw, line...)
			}
		} else if raw, err = io.ReadAll(answer.Body); err != nil {
			c.t.Fatalf("%s: %v", path, err)
		}
		if answer.StatusCode >= http.StatusMultipleChoices {
			c.t.Fatalf("%s %s: %s\n%s", method, path, answer.Status, raw)
		}
		return raw
	}
}

// hides fails the test if a text holds the marker, as it is or encoded.
func hides(t *testing.T, where string, raw []byte) {
	t.Helper()
	if len(raw) == 0 {
		t.Errorf("%s is empty", where)
	}
	forms := []string{marker, hex.EncodeToString([]byte(marker)), url.QueryEscape(marker)}
	for shift := range 3 { // base64 looks different by where it begins
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", shift) + marker))
		forms = append(forms, encoded[4:len(encoded)-4])
	}
	for _, form := range forms {
		if at := bytes.Index(raw, []byte(form)); at >= 0 {
			t.Errorf("%s holds the Secret's value: ...%s", where, raw[max(0, at-200):at])
			return
		}
	}
}

// TestSecretAsContentIsToldNowhere changes a Secret that is content, while the server logs, records and audits as much
// as it can, and looks for its values in all that people are shown.
func TestSecretAsContentIsToldNowhere(t *testing.T) {
	c := startTold(t)
	c.eventually("the Secret and the DaemonSet are there", func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	_, err := c.client.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"}, StringData: map[string]string{"token": marker + "-1"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cut := strings.LastIndex(withSecret, "---")
	c.run("kubectl", "apply", "-f", c.write("policy.yaml", withSecret[:cut]))
	c.eventually("the controller knows the policy", func(context.Context) error {
		got := c.run("kubectl", "get", "rp", "-o", "json")
		if !bytes.Contains(got, []byte(`"observedGeneration": 1`)) {
			return fmt.Errorf("it is\n%s", got)
		}
		return nil
	})
	c.run("kubectl", "apply", "-f", c.write("logs.yaml", withSecret[cut:]))
	c.status(`"phase": "Complete"`)
	manifest := c.write("secret.yaml", secretOf(marker+"-2"))
	for _, format := range [][]string{nil, {"-o", "json"}} {
		plan := c.run(append([]string{"plan", "-f", manifest}, format...)...)
		hides(t, fmt.Sprintf("plan %q", format), plan)
		if !bytes.Contains(plan, []byte("Secret agent, key token")) {
			t.Errorf("plan %q does not tell of the change:\n%s", format, plan)
		}
	}
	c.change(marker + "-2")
	c.status("Secret agent: token")
	c.status(`"phase": "WaitingForApproval"`)
	c.looks("a change waits")
	c.run("rollout", "approve", "daemonset/logs")
	c.status(`"phase": "Complete"`)
	c.change(marker + strings.Repeat("x", 1<<20-len(marker)))
	c.status("content can have")
	c.looks("it cannot be followed")
	c.stop()
	for _, file := range c.files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		hides(t, filepath.Base(file), raw)
	}
}

func (c *told) change(value string) {
	c.t.Helper()
	_, err := c.client.CoreV1().Secrets("default").Patch(c.t.Context(), "agent", types.MergePatchType,
		[]byte(`{"data":{"token":"`+base64.StdEncoding.EncodeToString([]byte(value))+`"}}`), metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// looks looks at all that people are shown now.
func (c *told) looks(when string) {
	c.t.Helper()
	for _, line := range []string{
		"why daemonset/logs", "why daemonset/logs -o json", "why sim-0001", "why sim-0001 -o json",
		"rollout status daemonset/logs --watch=false",
		"rollout status daemonset/logs --watch=false -o json", "kubectl rollout history daemonset/logs", "doctor",
		"kubectl describe daemonset,dsr,rp,pod,configmap", "kubectl get events -o yaml",
	} {
		hides(c.t, when+": everynode "+line, c.run(strings.Fields(line)...))
	}
	for _, path := range []string{
		"/api/v1/events", "/apis/events.k8s.io/v1/events", "/api/v1/pods", "/api/v1/configmaps", "/api/v1/nodes",
		"/apis/apps/v1/daemonsets",
		"/apis/apps/v1/controllerrevisions", "/apis/everynode.io/v1alpha1/daemonsetrollouts",
		"/apis/everynode.io/v1alpha1/rolloutpolicies", "/metrics",
	} {
		raw, err := c.client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(c.t.Context())
		if err != nil {
			c.t.Errorf("read %s: %v", path, err)
			continue
		}
		hides(c.t, when+": "+path, raw)
	}
	read := c.page()
	for _, path := range []string{
		"/", "/api/stream", "/api/stream?daemonset=default/logs", "/api/node?name=sim-0001",
		"/api/why?daemonset=default/logs",
		"/api/revisions?daemonset=default/logs", "/api/timeline?daemonset=default/logs",
		"/api/events?daemonset=default/logs", "/api/rights?daemonset=default/logs",
	} {
		hides(c.t, when+": the page's "+path, read(http.MethodGet, path, ""))
	}
	planned := strings.Replace(withSecret[strings.LastIndex(withSecret, "---")+4:], "demo:v1", "demo:v2",
		1) + "---\n" + secretOf(marker+"-3")
	hides(c.t, when+": the page's plan", read(http.MethodPost, "/api/plan", planned))
}
