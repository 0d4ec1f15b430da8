package foreign

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/beside/admit"
)

// chartAccount is whose rights the chart gives.
const chartAccount = "system:serviceaccount:everynode:everynode"

// chart is the controller's chart on a Kubernetes whose nodes run nothing: what its pods would run is run here.
type chart struct {
	*beside
	helmPath string
	// generations is how many times the replicas were started.
	generations int
}

// TestChartKubernetes goes with both versions of Helm from install to a canary, through an upgrade and back in the middle
// of a change, and to an uninstall that is refused after a bad image, and one that restarts no pod.
func TestChartKubernetes(t *testing.T) {
	c := &chart{beside: &beside{cluster: start(t, nodes)}}
	c.front = newFront(t)
	c.zones(t)
	c.busy(t)
	c.runs(t)
	root, err := filepath.Abs("../../packaging/chart")
	if err != nil {
		t.Fatal(err)
	}
	err = os.Symlink(root, filepath.Join(c.dir, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v4", "v3"} {
		c.helmPath = filepath.Join(root, "../../bin/helm-"+version)
		_, err = os.Stat(c.helmPath)
		if err != nil {
			t.Fatalf("%v; run: hack/helm.sh %s", err, version)
		}
		for _, step := range []struct {
			name string
			do   func(*testing.T)
		}{
			{"install", c.install},
			{"somebody's chart with a DaemonSet, each write twice", c.writesTwice},
			{"upgrade and rollback in the middle of a change", c.upgrade},
			{"a bad image halts, and helm uninstall is refused", c.refused},
			{"uninstall", c.uninstall},
		} {
			if !t.Run(version+": "+step.name, step.do) {
				return
			}
		}
	}
	c.refusals(chartAccount, 50)
}

// helm runs Helm as an administrator.
func (c *chart) helm(t *testing.T, args ...string) answer {
	t.Helper()
	return c.as(t, c.kubeconfig, c.helmPath, append(args, "--namespace=everynode")...)
}

// values are those with which the chart is installed.
func (c *chart) values(more string) []string {
	return []string{"everynode", "chart", "--timeout=100s", "--wait",
		"--set", "mode=Beside,image.repository=example.com/everynode,beside.url=https://" + c.front.at + more}
}

// install follows docs/another-kubernetes.md. No pod of the daemon may notice.
func (c *chart) install(t *testing.T) {
	before := c.pods(t)
	c.helm(t, append([]string{"install", "--create-namespace"}, c.values("")...)...).
		ends(t, 0).says(t, "beside the cluster's own DaemonSet controller")
	c.replace(t, 0)
	c.kubectl(t, "apply", "-f", c.write("policy.yaml", policy))
	c.stored(t, true)
	c.phase(t, "Complete")
	c.samePods(t, before)
	c.run(t, "doctor").ends(t, 0)
}

// writesTwice has Helm write a DaemonSet under a policy. What it writes again makes no new generation, and what it changes
// arrives.
func (c *chart) writesTwice(t *testing.T) {
	err := os.MkdirAll(filepath.Join(c.dir, "daemon", "templates"), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	set := strings.NewReplacer("NAME", "helmed", "follows: a-policy", "tier: agent").Replace(followed)
	c.write("daemon/Chart.yaml", "apiVersion: v2\nname: daemon\nversion: 1.0.0\n")
	c.write("daemon/templates/set.yaml", set)
	c.helm(t, "install", "daemon", "daemon").ends(t, 0)
	for _, w := range []struct{ limit, command string }{
		{"3", "upgrade daemon daemon"}, {"7", "upgrade daemon daemon"}, {"3", "rollback daemon 1"},
	} {
		c.write("daemon/templates/set.yaml", strings.Replace(set, "maxUnavailable: 3", "maxUnavailable: "+w.limit, 1))
		var generation int64
		for range 2 {
			c.helm(t, strings.Fields(w.command)...).ends(t, 0)
			ds, err := c.client.AppsV1().DaemonSets("default").Get(t.Context(), "helmed", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			kept := ds.Annotations[admit.UpdateStrategy]
			if !strings.Contains(kept, `"maxUnavailable":`+w.limit) || ds.Spec.UpdateStrategy.Type != "OnDelete" {
				t.Errorf("after helm %s the strategy is %+v, and %s is kept", w.command, ds.Spec.UpdateStrategy, kept)
			}
			if generation > 0 && ds.Generation != generation {
				t.Errorf("helm %s, done again, makes generation %d of %d", w.command, ds.Generation, generation)
			}
			generation = ds.Generation
		}
	}
	c.helm(t, "uninstall", "daemon").ends(t, 0)
}

// replace has what the Deployment's pods would run run here, in place of what ran before.
func (c *chart) replace(t *testing.T, verbosity int) {
	t.Helper()
	d, err := c.client.AppsV1().Deployments("everynode").Get(t.Context(), "everynode", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	args := d.Spec.Template.Spec.Containers[0].Args
	if !slices.Contains(args, fmt.Sprintf("--verbosity=%d", verbosity)) {
		t.Errorf("the Deployment runs %v", args)
	}
	c.stop()
	c.generations++
	var at []string
	for i := range int(*d.Spec.Replicas) {
		listen := "127.0.0.1:" + c.port()
		at = append(at, listen)
		c.replicas = append(c.replicas, c.begin(fmt.Sprintf("chart-%d-%d", c.generations, i), c.everynode,
			slices.Concat(args, []string{"--kubeconfig=" + c.account(t), "--webhook-listen=" + listen,
				"--listen=127.0.0.1:" + c.port()})...))
	}
	c.front.to.Store(&at)
}

// stop ends the replicas.
func (c *chart) stop() {
	for _, p := range c.replicas {
		p.stop()
	}
	c.replicas = nil
}

// upgrade changes values of the release while a change waits for approval, and takes that back. Nothing restarts, the
// change goes on, and what is stored stays so.
func (c *chart) upgrade(t *testing.T) {
	c.kubectl(t, "apply", "-f", "agent-2.yaml")
	c.phase(t, "WaitingForApproval")
	before, written := c.pods(t), c.written(t)
	c.helm(t, append([]string{"upgrade"}, c.values(",controller.verbosity=2")...)...).ends(t, 0)
	c.replace(t, 2)
	c.phase(t, "WaitingForApproval")
	c.lose(t, "1")
	c.with(t, map[string]int{"1": nodes - 2, "2": 2})
	c.helm(t, "rollback", "everynode", "1", "--wait", "--timeout=100s").ends(t, 0)
	c.replace(t, 0)
	c.phase(t, "WaitingForApproval")
	c.unchanged(t, before, 1)
	if now := c.written(t); now != written {
		t.Errorf("the DaemonSet is\n%s\nand was\n%s", now, written)
	}
	c.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0)
	c.phase(t, "Complete")
	c.images(t, "example.com/agent:2")
	c.kubectl(t, "apply", "-f", "agent.yaml")
	c.phase(t, "WaitingForApproval")
	c.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0)
	c.phase(t, "Complete")
}

// account writes a kubeconfig of the chart's account.
func (c *chart) account(t *testing.T) string {
	t.Helper()
	token := c.kubectl(t, "-n", "everynode", "create", "token", "everynode", "--duration", "24h")
	return c.kubeconfigOf("chart", strings.TrimSpace(token))
}

// leaves does what the pod of the hook would, and says how that ended, while Helm waits for it.
func (c *chart) leaves(t *testing.T) (end func() answer) {
	t.Helper()
	ended := make(chan answer, 1)
	go func() {
		var a answer
		var err error
		for range time.Tick(50 * time.Millisecond) {
			a, err = c.hook(t)
			if err == nil || a.line != "" || t.Context().Err() != nil {
				break
			}
		}
		if err != nil {
			a.errOut += err.Error()
			a.code = -1
		}
		ended <- a
	}()
	return func() answer { return <-ended }
}

// hook runs what the hook's pod is to run, and has the pod end so.
func (c *chart) hook(t *testing.T) (answer, error) {
	pods := c.client.CoreV1().Pods("everynode")
	list, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=everynode-leave"})
	if err != nil {
		return answer{}, err
	}
	if len(list.Items) != 1 || list.Items[0].Status.Phase != corev1.PodRunning {
		return answer{}, fmt.Errorf("there are %d pods", len(list.Items))
	}
	p := &list.Items[0]
	a := c.as(t, c.kubeconfig, c.everynode, append(p.Spec.Containers[0].Args, "--kubeconfig="+c.account(t))...)
	phase := corev1.PodFailed
	if a.code == 0 {
		phase = corev1.PodSucceeded
		c.stop() // Helm ends them next, and takes their account away
	}
	_, err = pods.Patch(t.Context(), p.Name, types.MergePatchType, []byte(`{"status":{"phase":"`+string(phase)+`"}}`),
		metav1.PatchOptions{}, "status")
	return a, err
}

// busy has the simulated nodes not end a Job's work by themselves.
func (b *beside) busy(t *testing.T) {
	t.Helper()
	b.kubectl(t, "annotate", "nodes", "--all", "simulated.everynode.io/fault={slowTask: {takes: 1h}}")
}

// refused uninstalls while two nodes have a revision that failed. Nothing may change by that.
func (c *chart) refused(t *testing.T) {
	// Another one with each Helm, for what has failed is not tried again by itself.
	c.kubectl(t, "set", "image", "ds/agent", fmt.Sprintf("agent=example.com/agent-%d:fail", c.generations))
	c.phase(t, "Halted")
	pods, written := c.pods(t), c.written(t)
	end := c.leaves(t)
	c.helm(t, "uninstall", "everynode", "--timeout=90s").ends(t, 1)
	end().ends(t, 1).says(t, "default/agent: 10 nodes have ", "nothing was given back, and nothing changed")
	c.synced(t)
	c.samePods(t, pods)
	if now := c.written(t); now != written {
		t.Errorf("the DaemonSet is\n%s\nand was\n%s", now, written)
	}
	c.run(t, "rollout", "abort", "daemonset/agent").ends(t, 0)
	c.phase(t, "RolledBack")
}

// uninstall gives everything back. No pod restarts, and nothing of the release is left but the kinds and the policies.
func (c *chart) uninstall(t *testing.T) {
	c.kubectl(t, "apply", "-f", "agent.yaml")
	c.phase(t, "Complete")
	pods := c.pods(t)
	c.kubectl(t, "apply", "-f", c.write("startup.yaml", startupOf("missing")))
	c.startups(t, true)
	c.bare(t, "bare", corev1.Taint{Key: "example.com/nothing", Effect: corev1.TaintEffectNoSchedule})
	c.gated(t, "bare", true)
	end := c.leaves(t)
	c.helm(t, "uninstall", "everynode", "--wait", "--timeout=100s").ends(t, 0)
	end().ends(t, 0).says(t, "default/agent is as its author wrote it; no pod changes")
	if n := c.gated(t, "bare", false); strings.Contains(fmt.Sprint(n.Annotations), "everynode.io/") {
		t.Errorf("the node has %v", n.Annotations)
	}
	c.kubectl(t, "delete", "node/bare", "nodestartup/all")
	c.synced(t)
	c.samePods(t, pods)
	c.unregistered(t)
	c.run(t, "kubectl", "diff", "-f", "agent.yaml").ends(t, 0)
	ds := c.set(t)
	if ds.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || len(ds.Status.Conditions) > 0 {
		t.Errorf("it is stored with %+v, and says %+v", ds.Spec.UpdateStrategy, ds.Status.Conditions)
	}
	left := c.kubectl(t, "-n", "everynode", "get", "deployments,jobs,services,secrets,serviceaccounts,roles,rolebindings",
		"-l", "app.kubernetes.io/instance=everynode", "-o", "name")
	left += c.kubectl(t, "get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/instance=everynode", "-o", "name")
	if left != "" {
		t.Errorf("there are left:\n%s", left)
	}
	c.kubectl(t, "get", "rolloutpolicy/agents", "crd/rolloutpolicies.everynode.io", "crd/daemonsetrollouts.everynode.io")
}
