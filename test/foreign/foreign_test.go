package foreign

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// account is whose rights the controller has.
const account = "system:serviceaccount:kube-system:everynode-daemonset-controller"

const nodes = 12

const agent = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: default, labels: {tier: agent}}
spec:
  selector: {matchLabels: {app: agent}}
  updateStrategy: {rollingUpdate: {maxUnavailable: 3}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      containers:
      - {name: agent, image: "example.com/agent:1", ports: [{containerPort: 8080}], readinessProbe: {httpGet: {path: /healthz, port: 8080}}}
`

const policy = `apiVersion: everynode.io/v1alpha1
kind: RolloutPolicy
metadata: {name: agents, namespace: default}
spec:
  selector: {matchLabels: {tier: agent}}
  waves:
  - {name: canary, count: 2, approval: Manual}
  - {name: zones, each: topology.kubernetes.io/zone, maxUnavailable: 2}
  failure: {max: 5%, min: 1, startDeadline: 1m, restarts: 2, then: Halt}
`

// TestOnAnotherKubernetes goes the whole way of somebody who has a Kubernetes: looks at it with the clients alone,
// hands its DaemonSets to our controller, changes them under a policy, and gives them back.
func TestOnAnotherKubernetes(t *testing.T) {
	c := start(t, nodes)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a Kubernetes without us", c.withoutUs},
		{"definitions, and no controller", c.withoutController},
		{"our controller takes over", c.takesOver},
		{"a change with a canary and an approval", c.changes},
		{"a revision that fails halts, and is taken back", c.halts},
		{"the plugin of kubectl", c.plugin},
		{"callers of few rights", c.fewRights},
		{"the page", c.page},
		{"who may take an approval out", c.approvals},
		{"the controller is killed in the middle", c.killed},
		{"Kubernetes' own controller takes over again", c.givenBack},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	c.refusals(account, 100)
}

// withoutUs looks at a Kubernetes as it comes, by clients alone. What is not there they say.
func (c *cluster) withoutUs(t *testing.T) {
	await(t, "all nodes are there", func(ctx context.Context) error {
		list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != nodes {
			err = fmt.Errorf("%d nodes", len(list.Items))
		}
		return err
	})
	for i := range nodes {
		c.kubectl(t, "label", "node", fmt.Sprintf("sim-%04d", i+1), "topology.kubernetes.io/zone="+string("abc"[i%3]))
	}
	c.kubectl(t, "apply", "-f", c.write("agent.yaml", agent))
	c.settled(t)
	c.write("agent-2.yaml", strings.Replace(agent, "agent:1", "agent:2", 1))
	const unknown = "this cluster does not have RolloutPolicies"
	c.run(t, "plan", "-f", "agent-2.yaml").ends(t, 2).says(t, "example.com/agent:1 -> example.com/agent:2",
		"12 nodes: 12 change", unknown)
	c.run(t, "plan", "-f", "agent.yaml").ends(t, 0)
	c.run(t, "why", "daemonset/agent").ends(t, 0).says(t, "12 Current", unknown)
	c.run(t, "why", "sim-0003").ends(t, 0).says(t, "default/agent on sim-0003: Current", unknown)
	c.run(t, "rollout", "status", "daemonset/agent").ends(t, 1).says(t,
		"this cluster does not know rollouts; teach it with: everynode controller --print-crds | kubectl apply -f -")
	d := c.dashboard(t, c.kubeconfig)
	if o := d.overview(t); !strings.Contains(o.Hidden, unknown) || o.Nodes != nodes {
		t.Errorf("the page's overview is %+v", o)
	}
}

// withoutController has policies that nobody follows: who plans by them must learn that.
func (c *cluster) withoutController(t *testing.T) {
	c.write("definitions.yaml", c.run(t, "controller", "--print-crds").ends(t, 0).out)
	c.kubectl(t, "apply", "-f", "definitions.yaml")
	c.kubectl(t, "wait", "crd/rolloutpolicies.everynode.io", "crd/daemonsetrollouts.everynode.io",
		"--for=condition=Established", "--timeout=1m")
	c.write("policy.yaml", policy)
	await(t, "a policy is taken", func(context.Context) error {
		if a := c.run(t, "kubectl", "apply", "-f", "policy.yaml"); a.code != 0 {
			return fmt.Errorf("%s", a.errOut)
		}
		return nil
	})
	const unseen = "no controller has taken note of policy agents"
	c.run(t, "plan", "-f", "agent-2.yaml").ends(t, 2).says(t, unseen)
	c.run(t, "why", "daemonset/agent").ends(t, 0).says(t, unseen)
	c.run(t, "rollout", "status", "daemonset/agent").ends(t, 1).says(t, "no controller has begun its rollout yet")
	c.kubectl(t, "delete", "rp/agents")
}

// takesOver follows docs/controller.md. No pod may notice.
func (c *cluster) takesOver(t *testing.T) {
	before := c.pods(t)
	c.startManager("*,-daemonset-controller")
	c.kubectl(t, "apply", "-f", c.example(t, "controller-rbac.yaml"), "-f", c.example(t, "rollout-roles.yaml"))
	c.control(t)
	c.kubectl(t, "patch", "ds/agent", "--type=merge", "-p", `{"spec":{"minReadySeconds":1}}`)
	c.settled(t)
	c.samePods(t, before)
}

// settled waits until a controller says that every node has what it is to have.
func (c *cluster) settled(t *testing.T) {
	t.Helper()
	await(t, "every node has the newest revision, available", func(ctx context.Context) error {
		ds, err := c.client.AppsV1().DaemonSets("default").Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && (ds.Status.ObservedGeneration != ds.Generation || ds.Status.UpdatedNumberScheduled != nodes ||
			ds.Status.NumberAvailable != nodes) {
			err = fmt.Errorf("its status is %+v", ds.Status)
		}
		return err
	})
}

// control starts our controller with the rights that are published, in place of the one before.
func (c *cluster) control(t *testing.T) *process {
	t.Helper()
	token := strings.TrimSpace(c.kubectl(t, "-n", "kube-system", "create", "token", "everynode-daemonset-controller",
		"--duration", "24h"))
	c.controller = c.begin("controller", c.everynode, "controller", "-v=2",
		"--kubeconfig="+c.kubeconfigOf("controller", token))
	return c.controller
}

// changes has a new image go to a canary, wait, and go on when it is approved.
func (c *cluster) changes(t *testing.T) {
	c.kubectl(t, "apply", "-f", "policy.yaml")
	c.phase(t, "Complete")
	c.run(t, "plan", "-f", "agent-2.yaml").ends(t, 2).says(t, "canary 2 2 0 now, then approval", "zones/a", "after canary")
	c.kubectl(t, "apply", "-f", "agent-2.yaml")
	c.phase(t, "WaitingForApproval")
	a := c.run(t, "rollout", "status", "daemonset/agent", "-w=false").ends(t, 0)
	a.says(t, "WaitingForApproval", "2 of 12 nodes done", "everynode rollout approve daemonset/agent -n default")
	c.run(t, "why", "daemonset/agent").ends(t, 0).says(t, "2 Current", "10 Waiting",
		"the next step begins when it is approved")
	var state struct{ TargetRevision string }
	if err := json.Unmarshal([]byte(c.run(t, "rollout", "status", "daemonset/agent", "-o", "json").ends(t, 0).out),
		&state); err != nil {
		t.Fatal(err)
	}
	c.run(t, "rollout", "approve", "daemonset/agent", "--revision", "another").ends(t, 1).says(t, "nothing is approved")
	c.run(t, "rollout", "approve", "daemonset/agent", "--revision", state.TargetRevision).ends(t, 0).says(t, "is approved")
	c.run(t, "rollout", "status", "daemonset/agent", "--timeout=2m").ends(t, 0).says(t, "Complete")
	c.images(t, "example.com/agent:2")

	// Undo is a change as any other: it waits at the canary, where it is approved in advance.
	c.kubectl(t, "rollout", "history", "ds/agent")
	c.kubectl(t, "rollout", "undo", "ds/agent")
	c.phase(t, "WaitingForApproval")
	c.run(t, "rollout", "approve", "daemonset/agent", "--all").ends(t, 0)
	c.run(t, "rollout", "status", "daemonset/agent", "--timeout=2m").ends(t, 0).says(t, "Complete")
	c.images(t, "example.com/agent:1")
}

// halts has an image that cannot be pulled.
func (c *cluster) halts(t *testing.T) {
	before := c.pods(t)
	c.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:fail")
	c.phase(t, "Halted")
	c.run(t, "rollout", "status", "daemonset/agent").ends(t, 1).says(t, "Halted", "failed on", "abort", "retry")
	c.run(t, "why", "daemonset/agent", "--verdict", "FailedRevision").ends(t, 0).says(t,
		"image example.com/agent:fail cannot be pulled")
	same := 0
	for node, uid := range c.pods(t) {
		if before[node] == uid {
			same++
		}
	}
	if same != nodes-2 {
		t.Errorf("%d pods were not touched, want all but those of the canary", same)
	}
	c.run(t, "rollout", "retry", "daemonset/agent").ends(t, 0)
	c.phase(t, "Halted")
	c.run(t, "rollout", "abort", "daemonset/agent").ends(t, 0).says(t, "is aborted")
	c.phase(t, "RolledBack")
	c.images(t, "example.com/agent:1")
	c.kubectl(t, "apply", "-f", "agent.yaml")
	c.phase(t, "Complete")
}

// plugin has kubectl find everynode by its other name.
func (c *cluster) plugin(t *testing.T) {
	if err := os.Symlink(c.everynode, filepath.Join(c.dir, "kubectl-everynode")); err != nil {
		t.Fatal(err)
	}
	callers := [][]string{{c.everynode, "kubectl"}}
	if path, err := exec.LookPath("kubectl"); err == nil {
		callers = append(callers, []string{path})
	}
	for _, by := range callers {
		plugin := func(args ...string) answer {
			return c.as(t, c.kubeconfig, by[0], append(append(slices.Clone(by[1:]), "everynode"), args...)...)
		}
		plugin("plan", "-f", "agent-2.yaml").ends(t, 2).says(t, "12 nodes: 12 change")
		plugin("why", "sim-0001", "daemonset/agent").ends(t, 0).says(t, "default/agent on sim-0001: Current")
		plugin("rollout", "status", "daemonset/agent").ends(t, 0).says(t, "Complete")
		plugin("rollout", "pause", "daemonset/agent").ends(t, 0).says(t, "is paused")
		plugin("rollout", "resume", "daemonset/agent").ends(t, 0).says(t, "goes on")
		c.phase(t, "Complete")
	}
}

// approvals applies the rule by which who may write a template does not take the approval out of its policy.
func (c *cluster) approvals(t *testing.T) {
	c.kubectl(t, "apply", "-f", c.example(t, "rollout-approval.yaml"))
	editor, boss := c.caller(t, "editor", "edit"), c.caller(t, "boss", "admin")
	without := c.write("no-approval.yaml", strings.Replace(policy, ", approval: Manual", "", 1))
	await(t, "the rule holds", func(context.Context) error {
		a := c.as(t, editor, c.everynode, "kubectl", "apply", "--dry-run=server", "-f", without)
		if !strings.Contains(a.errOut, "a wave of this policy waits for approval") {
			return fmt.Errorf("%s%s", a.out, a.errOut)
		}
		return nil
	})
	c.as(t, boss, c.everynode, "kubectl", "apply", "--dry-run=server", "-f", without).ends(t, 0)
	c.as(t, editor, c.everynode, "rollout", "pause", "daemonset/agent").ends(t, 1).says(t, "which the role admin has")
	c.as(t, boss, c.everynode, "rollout", "pause", "daemonset/agent").ends(t, 0)
	c.as(t, boss, c.everynode, "rollout", "resume", "daemonset/agent").ends(t, 0)
	c.phase(t, "Complete")
}

// killed ends the controller without a word in the middle of a change; another one goes on.
func (c *cluster) killed(t *testing.T) {
	c.kubectl(t, "apply", "-f", "agent-2.yaml")
	c.phase(t, "WaitingForApproval")
	if err := c.controller.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.controller.stop()
	c.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0)
	c.control(t)
	c.run(t, "rollout", "status", "daemonset/agent", "--timeout=2m").ends(t, 0).says(t, "Complete")
	c.images(t, "example.com/agent:2")
}

// givenBack goes back to where it began.
func (c *cluster) givenBack(t *testing.T) {
	before := c.pods(t)
	c.controller.stop()
	c.kubectl(t, "delete", "-f", "definitions.yaml", "--timeout=1m")
	c.startManager("*")
	c.kubectl(t, "patch", "ds/agent", "--type=merge", "-p", `{"spec":{"minReadySeconds":0}}`)
	c.settled(t)
	c.samePods(t, before)
	c.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:3")
	c.settled(t)
	c.images(t, "example.com/agent:3")
}

// refusals are requests of the controller that its rights do not allow: each is a fault of what is published.
func (c *cluster) refusals(account string, least int) {
	raw, err := os.ReadFile(c.audit)
	if err != nil {
		c.t.Fatal(err)
	}
	asked := 0
	for line := range strings.Lines(string(raw)) {
		var e struct {
			User           struct{ Username string }
			Verb           string
			RequestURI     string
			ResponseStatus struct {
				Code    int
				Message string
			}
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			c.t.Fatalf("read the audit log: %v", err)
		}
		if e.User.Username != account {
			continue
		}
		asked++
		if e.ResponseStatus.Code == 401 || e.ResponseStatus.Code == 403 {
			c.t.Errorf("the controller may not %s %s: %s", e.Verb, e.RequestURI, e.ResponseStatus.Message)
		}
	}
	c.t.Logf("the controller sent %d requests", asked)
	if asked < least {
		c.t.Errorf("the audit log has %d requests of the controller, which cannot be all", asked)
	}
}

// phase waits until the rollout is in a phase, with everything seen that was changed before.
func (c *cluster) phase(t *testing.T, want string) {
	t.Helper()
	await(t, "the rollout is "+want, func(context.Context) error {
		a := c.run(t, "rollout", "status", "daemonset/agent", "-o", "json")
		var s struct{ Phase, Message string }
		if err := json.Unmarshal([]byte(a.out), &s); err != nil {
			return fmt.Errorf("%s%s", a.out, a.errOut)
		}
		if s.Phase != want || strings.Contains(s.Message, "has not seen the last change yet") {
			return fmt.Errorf("it is %s: %s", s.Phase, s.Message)
		}
		return nil
	})
}

// pods are the UIDs of the agent's pods by node.
func (c *cluster) pods(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, p := range c.list(t) {
		out[p.Spec.NodeName] = string(p.UID)
	}
	return out
}

func (c *cluster) list(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := c.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=agent"})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func (c *cluster) samePods(t *testing.T, before map[string]string) {
	t.Helper()
	if after := c.pods(t); fmt.Sprint(after) != fmt.Sprint(before) || len(after) != nodes {
		t.Errorf("the pods are %v, want the same as before: %v", after, before)
	}
}

// images waits until every pod has an image.
func (c *cluster) images(t *testing.T, want string) {
	t.Helper()
	await(t, "every pod has "+want, func(context.Context) error {
		pods := c.list(t)
		for i := range pods {
			if p := &pods[i]; p.Spec.Containers[0].Image != want || p.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s has %s", p.Name, p.Spec.Containers[0].Image)
			}
		}
		if len(pods) != nodes {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		return nil
	})
}

// example is the path of one of the published manifests.
func (c *cluster) example(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../examples", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// caller makes somebody who has a role in the namespace, and returns a kubeconfig for him.
func (c *cluster) caller(t *testing.T, name, role string) string {
	t.Helper()
	c.kubectl(t, "create", "serviceaccount", name)
	if role != "" {
		c.kubectl(t, "create", "rolebinding", name, "--clusterrole="+role, "--serviceaccount=default:"+name)
	}
	return c.kubeconfigOf(name, strings.TrimSpace(c.kubectl(t, "create", "token", name)))
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+/#key=\S+`)
