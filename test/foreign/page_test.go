package foreign

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// guide has the commands of a page of docs, each of which must be run.
type guide struct {
	*beside
	commands []string
	// text is the page in one line.
	text string
	used map[string]bool
}

// TestPageKubernetes runs every command of docs/another-kubernetes.md, as it stands there. What is added is where the
// webhook is found, since nothing on this Kubernetes leads to a Service, and addresses that are free.
func TestPageKubernetes(t *testing.T) {
	p := &guide{beside: &beside{cluster: start(t, nodes)}, used: map[string]bool{}}
	p.front = newFront(t)
	p.zones(t)
	p.busy(t)
	p.runs(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(root, "docs/another-kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	p.text = strings.Join(strings.Fields(string(raw)), " ")
	p.commands = commandsOf(t, string(raw))
	for name, to := range map[string]string{
		"examples": root + "/examples", "packaging": root + "/packaging", "helm": root + "/bin/helm-v4", "everynode": p.everynode,
		"kubectl-everynode": p.everynode,
	} {
		_, err = os.Stat(to)
		if err == nil {
			err = os.Symlink(to, filepath.Join(p.dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err = os.WriteFile(filepath.Join(p.dir, "kubectl"), []byte("#!/bin/sh\nexec everynode kubectl \"$@\"\n"), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"clients alone", p.clients}, {"the chart", p.chart}, {"GitOps", p.gitOps}, {"leaving the chart", p.leavesChart},
		{"without Helm", p.withoutHelm}, {"leaving", p.leaves}, {"in place of its controller", p.instead}, {"back", p.back},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	for _, c := range p.commands {
		if !p.used[c] {
			t.Errorf("nobody has run:\n%s", c)
		}
	}
}

// commandsOf are the commands in a page's blocks. A line that goes on, by a backslash or a document within, is part of one.
func commandsOf(t *testing.T, page string) (out []string) {
	t.Helper()
	inBlock, more := false, ""
	for line := range strings.Lines(page) {
		text := strings.TrimRight(line, "\n")
		indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
		if strings.HasPrefix(strings.TrimSpace(text), "```") {
			inBlock = !inBlock
			continue
		}
		if !inBlock {
			continue
		}
		text = strings.TrimPrefix(text, indent[:min(len(indent), 3)])
		within := strings.Contains(more, "<<EOF")
		more += text
		if within && text != "EOF" || !within && (strings.Contains(text, "<<EOF") || strings.HasSuffix(text, `\`)) {
			more += "\n"
			continue
		}
		if !slices.Contains(out, more) {
			out = append(out, more)
		}
		more = ""
	}
	if len(out) < 15 {
		t.Fatalf("the page has %d commands:\n%s", len(out), strings.Join(out, "\n"))
	}
	return out
}

// says is the one command of the page that begins so.
func (p *guide) says(t *testing.T, begins string) string {
	t.Helper()
	var found []string
	for _, c := range p.commands {
		if strings.HasPrefix(c, begins) {
			found = append(found, c)
		}
	}
	if len(found) == 0 || len(found) > 1 && !slices.Contains(found, begins) {
		t.Fatalf("the page has %d commands that begin with %q", len(found), begins)
	}
	c := found[0]
	if len(found) > 1 {
		c = begins
	}
	p.used[c] = true
	return c
}

// do runs a command of the page, with something added to its end.
func (p *guide) do(t *testing.T, begins, more string) answer {
	t.Helper()
	return p.as(t, p.kubeconfig, "bash", "-e", "-o", "pipefail", "-c", p.says(t, begins)+more)
}

// inline runs a command that stands in a sentence of the page.
func (p *guide) inline(t *testing.T, command string) answer {
	t.Helper()
	if !strings.Contains(p.text, "`"+command+"`") {
		t.Fatalf("the page does not say %s", command)
	}
	return p.as(t, p.kubeconfig, "bash", "-e", "-o", "pipefail", "-c", command).ends(t, 0)
}

// starts runs a command of the page that goes on until it is stopped, with flags at its end.
func (p *guide) starts(t *testing.T, name, begins string, flags ...string) *process {
	t.Helper()
	args := strings.Fields(p.says(t, begins))
	if args[0] != "everynode" {
		t.Fatalf("%s is not a command of everynode", begins)
	}
	return p.begin(name, p.everynode, append(args[1:], flags...)...)
}

func (p *guide) clients(t *testing.T) {
	p.do(t, "kubectl apply -f examples/reader-rbac.yaml", "").ends(t, 0)
	p.do(t, "kubectl create clusterrolebinding alice-reads", "").ends(t, 0)
	p.inline(t, "kubectl everynode why sim-0001").says(t, "default/agent on sim-0001: Current")
}

// chart installs, and changes the daemon under the policy of the page.
func (p *guide) chart(t *testing.T) {
	p.do(t, "helm install", ",beside.url=https://"+p.front.at).ends(t, 0)
	p.do(t, "kubectl apply -f examples/rollout-roles.yaml -f examples/rollout-approval.yaml", "").ends(t, 0)
	c := &chart{beside: p.beside}
	c.replace(t, 0)
	p.do(t, "kubectl apply -f - <<EOF", "").ends(t, 0)
	p.stored(t, true)
	p.phase(t, "Complete")
	p.do(t, "kubectl set image ds/agent", "").ends(t, 0)
	p.phase(t, "WaitingForApproval")
	ended := make(chan answer, 1)
	status := p.says(t, "everynode rollout status daemonset/agent")
	go func() { ended <- p.as(t, p.kubeconfig, "bash", "-c", status) }()
	p.do(t, "everynode rollout approve daemonset/agent", "").ends(t, 0)
	a := <-ended
	a.ends(t, 0).says(t, "Complete")
	p.images(t, "example.com/agent:2")
	p.run(t, "doctor").ends(t, 0)
}

func (p *guide) gitOps(t *testing.T) {
	p.do(t, "kubectl wait ds/agent", "").ends(t, 0)
	p.do(t, "kubectl wait dsr/agent", "").ends(t, 0)
	p.kubectl(t, "create", "namespace", "argocd")
	p.kubectl(t, "-n", "argocd", "create", "configmap", "argocd-cm", "--from-literal=url=https://argocd.example.com")
	p.do(t, "kubectl -n argocd patch configmap argocd-cm", "").ends(t, 0)
	cm, err := p.client.CoreV1().ConfigMaps("argocd").Get(t.Context(), "argocd-cm", metav1.GetOptions{})
	if err != nil || len(cm.Data) != 3 {
		t.Errorf("its settings are %v (%v)", cm, err)
	}
}

// leavesChart is what the page says in a sentence: helm uninstall.
func (p *guide) leavesChart(t *testing.T) {
	before := p.pods(t)
	c := &chart{beside: p.beside, helmPath: filepath.Join(p.dir, "helm")}
	end := c.leaves(t)
	c.helm(t, "uninstall", "everynode", "--wait", "--timeout=100s").ends(t, 0)
	end().ends(t, 0)
	p.synced(t)
	p.samePods(t, before)
}

// withoutHelm does by hand what the chart does. The policy is still there.
func (p *guide) withoutHelm(t *testing.T) {
	p.do(t, "everynode controller --print-crds | kubectl apply -f -", "").ends(t, 0)
	p.do(t, "kubectl apply -f examples/beside-rbac.yaml", "").ends(t, 0)
	token := strings.TrimSpace(p.kubectl(t, "-n", "kube-system", "create", "token", "everynode-beside", "--duration", "24h"))
	kubeconfig := p.kubeconfigOf("beside", token)
	var at []string
	for i := range 2 {
		at = append(at, "127.0.0.1:"+p.port())
		p.replicas = append(p.replicas, p.starts(t, fmt.Sprintf("by-hand-%d", i), "everynode controller --beside",
			"--kubeconfig="+kubeconfig, "--webhook-listen="+at[i], "--webhook-url=https://"+p.front.at,
			"--listen=127.0.0.1:"+p.port()))
	}
	p.front.to.Store(&at)
	p.stored(t, true)
	p.phase(t, "Complete")
}

func (p *guide) leaves(t *testing.T) {
	before := p.pods(t)
	err := os.MkdirAll(filepath.Join(p.dir, ".kube"), 0o700)
	if err == nil {
		err = os.Symlink(p.kubeconfig, filepath.Join(p.dir, ".kube", "config"))
	}
	if err != nil {
		t.Fatal(err)
	}
	p.do(t, "everynode controller --leave", "").ends(t, 0).says(t, "1 DaemonSets are given back")
	for _, r := range p.replicas {
		r.stop()
	}
	p.stored(t, false)
	p.synced(t)
	p.samePods(t, before)
	p.unregistered(t)
	p.inline(t, "everynode controller --print-crds | kubectl delete -f -")
}

// instead has our controller in place of the cluster's own.
func (p *guide) instead(t *testing.T) {
	before := p.pods(t)
	p.do(t, "everynode controller --print-crds | kubectl apply -f -", "").ends(t, 0)
	await(t, "the kinds are known", func(context.Context) error {
		a := p.run(t, "kubectl", "get", "rp")
		if a.code != 0 {
			return fmt.Errorf("%s", a.errOut)
		}
		return nil
	})
	p.do(t, "kubectl apply -f examples/controller-rbac.yaml", "").ends(t, 0)
	p.startManager("*,-daemonset-controller")
	for _, begins := range []string{"kubectl config view", "kubectl config --kubeconfig controller.kubeconfig set-credentials",
		"kubectl config --kubeconfig controller.kubeconfig set-context"} {
		p.do(t, begins, "").ends(t, 0)
	}
	p.controller = p.starts(t, "instead", "everynode controller --kubeconfig controller.kubeconfig", "--listen=127.0.0.1:"+p.port())
	p.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:3")
	p.images(t, "example.com/agent:3")
	for node, uid := range p.pods(t) {
		if uid == before[node] {
			t.Errorf("the pod on %s is that of before", node)
		}
	}
}

func (p *guide) back(t *testing.T) {
	p.settled(t)
	before := p.pods(t)
	p.controller.stop()
	p.inline(t, "everynode controller --print-crds | kubectl delete -f -")
	p.startManager("*")
	p.synced(t)
	p.samePods(t, before)
	for _, pod := range p.list(t) {
		if pod.Status.Phase != corev1.PodRunning {
			t.Errorf("%s is %s", pod.Name, pod.Status.Phase)
		}
	}
}
