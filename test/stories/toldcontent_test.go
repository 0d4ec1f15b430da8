package stories

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
)

// badContent is what a configuration is that no container works with.
const badContent = "faults: [{name: bad configuration, " +
	`badContent: {key: agent.conf, value: bad, exitCode: 2, message: "line 1: bad"}}]`

// followed is a policy that makes Secrets a part of revisions, the rights for that, and a ConfigMap.
const followed = `
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
  failure: {max: 0, min: 1, then: Rollback}
  content: {secrets: Referenced, settle: 1s}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, namespace: default}
data: {agent.conf: good}
`

// reader is a DaemonSet that reads Secrets in each way that there is.
const reader = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs, namespace: default}
spec:
  selector: {matchLabels: {app: logs}}
  template:
    metadata: {labels: {app: logs}}
    spec:
      containers:
      - name: c
        image: demo:v1
        envFrom: [{secretRef: {name: agent}}]
        env: [{name: LATER, valueFrom: {secretKeyRef: {name: later, key: token, optional: true}}}]
        volumeMounts: [{name: s, mountPath: /token, subPath: token}, {name: p, mountPath: /all}]
      volumes:
      - {name: s, secret: {secretName: agent}}
      - name: p
        projected:
          sources: [{secret: {name: later, optional: true}}, {secret: {name: agent}}, {configMap: {name: conf}}]
`

// anotherReader is the DaemonSet with another template.
func (c *told) anotherReader() string { return strings.Replace(c.reader(), "demo:v1", "demo:v2", 1) }

// reader is the DaemonSet: where running pods are given content, with nothing that they cannot follow.
func (c *told) reader() string {
	if !c.live {
		return reader
	}
	return cut(reader, "        envFrom:", "        volumeMounts:", "{name: s, mountPath: /token, subPath: token}, ", "{name: p")
}

// cut takes out what is from the first of each pair of texts up to the second.
func cut(text string, pairs ...string) string {
	for pair := range slices.Chunk(pairs, 2) {
		before, rest, _ := strings.Cut(text, pair[0])
		_, after, _ := strings.Cut(rest, pair[1])
		text = before + pair[1] + after
	}
	return text
}

// secretOf is a manifest of the Secret "agent": a key in clear, and one encoded with other bytes around it.
func secretOf(n int) string {
	binary := base64.StdEncoding.EncodeToString([]byte("\x00\xff" + hidden[0] + "\xfe"))
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: agent, namespace: default}\n"+
		"stringData: {token: %s-%d}\ndata: {binary: %s}\n", hidden[0], n, binary)
}

// laterOf is a manifest of the Secret "later".
func laterOf(n int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: later, namespace: default}\n"+
		"stringData: {token: %s-%d}\n", hidden[1], n)
}

// Audit policies: as much as there is, but of Secrets only that they are read and written; and that of the guide.
const (
	wholeRequests = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n" +
		"- {level: Metadata, resources: [{group: '', resources: [secrets]}]}\n- {level: RequestResponse}\n"
	auditExample = "../../examples/audit-policy.yaml"
)

// TestSecretAsContentIsToldNowhere changes Secrets that are content, to what works, to what does not, and back, while all
// processes log, record and audit as much as they can, and looks for the values in all that people are shown.
func TestSecretAsContentIsToldNowhere(t *testing.T) {
	example, err := os.ReadFile(auditExample)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("by the server", func(t *testing.T) {
		t.Parallel()
		startTold(t, wholeRequests, false).story()
	})
	t.Run("by a controller of its own", func(t *testing.T) {
		t.Parallel()
		startTold(t, string(example), true).story()
	})
	t.Run("in running pods", func(t *testing.T) {
		t.Parallel()
		c := startTold(t, wholeRequests, false)
		c.live = true
		c.run("kubectl", "label", "nodes", "--all", content.LiveName+"=true")
		c.story()
	})
}

func (c *told) story() {
	c.begins()
	c.plans()
	c.apply(secretOf(2))
	c.status("Secret agent: token", `"phase":"WaitingForApproval"`)
	c.looks("a change waits")
	c.run("rollout", "approve", "daemonset/logs")
	c.status(`"phase":"Complete"`)
	pointed := bytes.Count(c.run("kubectl", "get", "pods", "-o", "json"), []byte(`"`+content.LiveName+`"`))
	if c.live != (pointed > 0) {
		c.t.Errorf("%d pods were given content as they ran", pointed)
	}
	c.apply(secretOf(3) + "---\n" + laterOf(3))
	c.configure("bad")
	c.status("Secret agent: token", "Secret later", `"phase":"RolledBack"`, "exit code 2")
	c.looks("it went back")
	c.configure("mended")
	c.status("Secret agent: token", `"phase":"WaitingForApproval"`)
	c.run("rollout", "abort", "daemonset/logs")
	c.status("Secret agent: token", `"phase":"RolledBack"`, "abort")
	c.looks("somebody took it back")
	c.tooMuch()
	c.status("content can have")
	c.looks("it cannot be followed")
	c.stop()
	for _, file := range c.files {
		raw, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		hides(c.t, filepath.Base(file), raw)
		if strings.HasPrefix(filepath.Base(file), "audit") && !bytes.Contains(raw, []byte(`"secrets"`)) {
			c.t.Errorf("%s does not speak of Secrets", file)
		}
	}
}

// begins has all pods read copies.
func (c *told) begins() {
	c.t.Helper()
	c.eventually("the account is there", func(ctx context.Context) error {
		_, err := c.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	c.apply(secretOf(1))
	policy := followed
	if c.live {
		policy = strings.Replace(policy, "settle: 1s", "apply: Live, settle: 1s", 1)
	}
	c.apply(policy)
	c.eventually("the controller knows the policy", func(context.Context) error {
		got := c.run("kubectl", "get", "rp", "-o", "json")
		if !bytes.Contains(got, []byte(`"observedGeneration": 1`)) {
			return fmt.Errorf("it is\n%s", got)
		}
		return nil
	})
	c.apply(c.reader())
	c.status(`"phase":"Complete"`)
}

// apply has kubectl apply manifests, which keeps what is in them in an annotation of the author's object too.
func (c *told) apply(text string) {
	c.t.Helper()
	c.run("kubectl", "apply", "-f", c.write("manifests.yaml", text))
}

// status waits until the rollout's status has some texts.
func (c *told) status(texts ...string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("the rollout says %q", texts), func(ctx context.Context) error {
		const all = "/apis/everynode.io/v1alpha1/daemonsetrollouts"
		got, err := c.client.CoreV1().RESTClient().Get().AbsPath(all).DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("read the rollout: %w", err)
		}
		for _, text := range texts {
			if !bytes.Contains(got, []byte(text)) {
				return fmt.Errorf("there is no %q in\n%s", text, got)
			}
		}
		return nil
	})
}

// plans plans a change of one Secret and the coming of another.
func (c *told) plans() {
	c.t.Helper()
	manifest := c.write("planned.yaml", secretOf(2)+"---\n"+laterOf(2)+"---\n"+c.anotherReader())
	for _, format := range [][]string{nil, {"-o", "json"}} {
		plan := c.run(append([]string{"plan", "-f", manifest}, format...)...)
		hides(c.t, fmt.Sprintf("plan %q", format), plan)
		for _, told := range []string{"Secret agent, key token", "Secret later"} {
			if !bytes.Contains(plan, []byte(told)) {
				c.t.Errorf("plan %q does not tell of %s:\n%s", format, told, plan)
			}
		}
	}
}

// configure writes the ConfigMap.
func (c *told) configure(value string) {
	c.t.Helper()
	_, err := c.client.CoreV1().ConfigMaps("default").Patch(c.t.Context(), "conf", types.MergePatchType,
		[]byte(`{"data":{"agent.conf":"`+value+`"}}`), metav1.PatchOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// tooMuch has a Secret hold more than content can.
func (c *told) tooMuch() {
	c.t.Helper()
	long := hidden[1] + strings.Repeat("x", 1<<20-len(hidden[1]))
	_, err := c.client.CoreV1().Secrets("default").Patch(c.t.Context(), "later", types.MergePatchType,
		[]byte(`{"data":{"token":"`+base64.StdEncoding.EncodeToString([]byte(long))+`"}}`), metav1.PatchOptions{})
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
		"kubectl describe daemonset,dsr,rp,pod,configmap,secret,controllerrevision", "kubectl get events -o yaml",
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
	for _, url := range c.metrics {
		hides(c.t, when+": "+url, c.get(url))
	}
	c.looksAtSecrets(when)
	c.looksAtThePage(when)
}

// get reads from a server that asks nobody who he is.
func (c *told) get(url string) []byte {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		c.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return raw
}

// looksAtSecrets wants values in the data of Secrets alone; the author's own have them in kubectl's annotation too.
func (c *told) looksAtSecrets(when string) {
	c.t.Helper()
	list, err := c.client.CoreV1().Secrets("default").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	copies := 0
	for i := range list.Items {
		s := &list.Items[i]
		if s.Labels[content.Label] == "" {
			delete(s.Annotations, corev1.LastAppliedConfigAnnotation)
		} else {
			copies++
		}
		s.Data = nil
		raw, err := json.Marshal(s)
		if err != nil {
			c.t.Fatal(err)
		}
		hides(c.t, when+": what is not data of Secret "+s.Name, raw)
	}
	if copies == 0 {
		c.t.Errorf("%s: there is no copy of a Secret", when)
	}
}

func (c *told) looksAtThePage(when string) {
	c.t.Helper()
	if c.page == nil {
		c.page = c.startPage()
	}
	read := c.page
	for _, path := range []string{
		"/", "/api/stream", "/api/stream?daemonset=default/logs", "/api/node?name=sim-0001",
		"/api/why?daemonset=default/logs",
		"/api/revisions?daemonset=default/logs", "/api/timeline?daemonset=default/logs",
		"/api/events?daemonset=default/logs", "/api/rights?daemonset=default/logs",
	} {
		hides(c.t, when+": the page's "+path, read(http.MethodGet, path, ""))
	}
	planned := c.anotherReader() + "---\n" + secretOf(9) + "---\n" + laterOf(9)
	hides(c.t, when+": the page's plan", read(http.MethodPost, "/api/plan", planned))
}
