package foreign

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// chartAccount is whose rights the chart gives.
const chartAccount = "system:serviceaccount:everynode:everynode"

// chart is the controller's chart on a Kubernetes whose nodes run nothing: what its pods would run is run here.
type chart struct {
	*beside
	helmPath string
}

// TestChartKubernetes goes from helm install to a canary, and has helm uninstall refused in the middle of a change.
func TestChartKubernetes(t *testing.T) {
	path, err := filepath.Abs("../../bin/helm-v4")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(path)
	if err != nil {
		t.Skip("bin/helm-v4 is not built; run: hack/helm.sh v4")
	}
	c := &chart{&beside{cluster: start(t, nodes)}, path}
	c.front = newFront(t)
	c.zones(t)
	c.runs(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"install", c.install},
		{"a bad image halts, and helm uninstall is refused", c.refused},
	} {
		if !t.Run(step.name, step.do) {
			return
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
func (c *chart) values() []string {
	return []string{"../../packaging/chart", "--set", "mode=Beside,image.repository=example.com/everynode,beside.url=https://" + c.front.at}
}

// install follows docs/another-kubernetes.md. No pod of the daemon may notice.
func (c *chart) install(t *testing.T) {
	before := c.pods(t)
	root, err := filepath.Abs("../../packaging/chart")
	if err != nil {
		t.Fatal(err)
	}
	err = os.Symlink(root, filepath.Join(c.dir, "chart"))
	if err != nil {
		t.Fatal(err)
	}
	c.helm(t, append([]string{"install", "everynode", "chart", "--create-namespace", "--wait", "--timeout=2m"}, c.values()[1:]...)...).
		ends(t, 0).says(t, "beside the cluster's own DaemonSet controller")
	d, err := c.client.AppsV1().Deployments("everynode").Get(t.Context(), "everynode", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var at []string
	for i := range int(*d.Spec.Replicas) {
		listen := "127.0.0.1:" + c.port()
		at = append(at, listen)
		c.replicas = append(c.replicas, c.begin(fmt.Sprintf("chart-%d", i), c.everynode,
			append(d.Spec.Template.Spec.Containers[0].Args, "--kubeconfig="+c.account(t), "--webhook-listen="+listen,
				"--listen=127.0.0.1:"+c.port())...))
	}
	c.front.to.Store(&at)
	c.kubectl(t, "apply", "-f", c.write("policy.yaml", policy))
	c.phase(t, "Complete")
	c.stored(t, true)
	c.samePods(t, before)
	c.run(t, "doctor").ends(t, 0)
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
		await(t, "the hook's pod is there", func(ctx context.Context) error {
			list, err := c.client.CoreV1().Pods("everynode").List(ctx,
				metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=everynode-leave"})
			if err != nil {
				return err
			}
			if len(list.Items) == 0 || list.Items[0].Status.Phase != corev1.PodRunning {
				return fmt.Errorf("there are %d pods", len(list.Items))
			}
			p := &list.Items[0]
			a := c.as(t, c.kubeconfig, c.everynode, append(p.Spec.Containers[0].Args, "--kubeconfig="+c.account(t))...)
			phase := corev1.PodSucceeded
			if a.code != 0 {
				phase = corev1.PodFailed
			}
			_, err = c.client.CoreV1().Pods("everynode").Patch(ctx, p.Name, types.MergePatchType,
				[]byte(`{"status":{"phase":"`+string(phase)+`"}}`), metav1.PatchOptions{}, "status")
			ended <- a
			return err
		})
	}()
	return func() answer { return <-ended }
}

// refused uninstalls while two nodes have a revision that failed. Nothing may change by that.
func (c *chart) refused(t *testing.T) {
	c.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:fail")
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
