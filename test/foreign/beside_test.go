package foreign

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/beside/admit"
)

// besideAccount is whose rights the controller has beside kube-controller-manager.
const besideAccount = "system:serviceaccount:kube-system:everynode-beside"

// beside is Everynode next to a kube-controller-manager that makes the pods.
type beside struct {
	*cluster
	front    *front
	replicas []*process
	// shows is where the replicas show their metrics.
	shows []string
	// slow stands between the second replica and the API server, in tests in which what that sees is late.
	slow *slow
}

// TestBesideKubernetes has policies hold while kube-controller-manager's DaemonSet controller makes the pods.
func TestBesideKubernetes(t *testing.T) {
	b := &beside{cluster: start(t, nodes)}
	b.front = newFront(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"a policy takes a DaemonSet over", b.takesOver},
		{"a bad image stops at its canary, and comes back", b.badImage},
		{"a good one waits for approval, and goes on", b.goodImage},
		{"a node in maintenance is changed after it", b.maintained},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	b.refusals(besideAccount, 100)
}

// takesOver has two replicas, and a policy for a DaemonSet that is there. No pod may notice.
func (b *beside) takesOver(t *testing.T) {
	b.prepares(t)
	before := b.pods(t)
	b.begins(t)
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", policy))
	b.phase(t, "Complete")
	b.stored(t, true)
	b.samePods(t, before)
	b.seen(t, "Current", "Healthy")
	b.same(t, "agent.yaml")
}

// prepares has nodes, the kinds, the rights, and a DaemonSet that kube-controller-manager runs.
func (b *beside) prepares(t *testing.T) {
	t.Helper()
	b.zones(t)
	b.kinds(t)
	b.runs(t)
}

// kinds has the cluster know ours, and the controller have its rights.
func (b *beside) kinds(t *testing.T) {
	t.Helper()
	b.write("definitions.yaml", b.run(t, "controller", "--print-crds").ends(t, 0).out)
	b.kubectl(t, "apply", "-f", "definitions.yaml")
	b.kubectl(t, "wait", "crd/rolloutpolicies.everynode.io", "crd/daemonsetrollouts.everynode.io",
		"--for=condition=Established", "--timeout=1m")
	b.kubectl(t, "apply", "-f", b.example(t, "beside-rbac.yaml"), "-f", b.example(t, "rollout-roles.yaml"))
}

// runs has a DaemonSet that kube-controller-manager runs.
func (b *beside) runs(t *testing.T) {
	t.Helper()
	b.kubectl(t, "apply", "-f", b.write("agent.yaml", agent))
	b.write("agent-2.yaml", strings.Replace(agent, "agent:1", "agent:2", 1))
	b.settled(t)
}

// zones waits for all nodes, and puts them into three zones.
func (b *beside) zones(t *testing.T) {
	t.Helper()
	await(t, "all nodes are there", func(ctx context.Context) error {
		list, err := b.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != nodes {
			err = fmt.Errorf("%d nodes", len(list.Items))
		}
		return err
	})
	for i := range nodes {
		b.kubectl(t, "label", "node", fmt.Sprintf("sim-%04d", i+1), "topology.kubernetes.io/zone="+string("abc"[i%3]))
	}
}

// begins starts two replicas, behind one address.
func (b *beside) begins(t *testing.T, flags ...string) {
	t.Helper()
	token := strings.TrimSpace(b.kubectl(t, "-n", "kube-system", "create", "token", "everynode-beside", "--duration",
		"24h"))
	kubeconfig := b.kubeconfigOf("beside", token)
	b.replicas = nil
	var at, shows []string
	for i := range 2 {
		listen := "127.0.0.1:" + b.port()
		at = append(at, listen)
		shows = append(shows, "127.0.0.1:"+b.port())
		reaches := kubeconfig
		if i == 1 && b.slow != nil {
			reaches = b.slow.kubeconfig(t, b.cluster, token)
		}
		b.replicas = append(b.replicas, b.begin(fmt.Sprintf("beside-%d", i), b.everynode, append([]string{"controller",
			"--beside", "-v=3", "--kubeconfig=" + reaches, "--webhook-listen=" + listen,
			"--webhook-url=https://" + b.front.at, "--listen=" + shows[i]}, flags...)...))
	}
	b.shows = shows
	b.front.to.Store(&at)
}

// stored waits until the DaemonSet is stored for a policy, or as its author wrote it.
func (b *beside) stored(t *testing.T, taken bool) {
	t.Helper()
	await(t, fmt.Sprintf("that the DaemonSet is taken over is %v", taken), func(ctx context.Context) error {
		ds, err := b.client.AppsV1().DaemonSets("default").Get(ctx, "agent", metav1.GetOptions{})
		if err != nil {
			return err
		}
		waits := ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
		if waits != taken || admit.Taken(ds) != taken {
			return fmt.Errorf("its strategy is %+v, its annotations are %v", ds.Spec.UpdateStrategy, ds.Annotations)
		}
		return nil
	})
}

// unchanged wants all pods but so many to be those that were there before.
func (b *beside) unchanged(t *testing.T, before map[string]string, but int) {
	t.Helper()
	same := 0
	for node, uid := range b.pods(t) {
		if before[node] == uid {
			same++
		}
	}
	if same != nodes-but {
		t.Errorf("%d pods were not touched, want all but %d of %d", same, but, nodes)
	}
}

// with waits until as many pods as given have each image.
func (b *beside) with(t *testing.T, want map[string]int) {
	t.Helper()
	await(t, fmt.Sprintf("the images are %v", want), func(context.Context) error {
		have := map[string]int{}
		for _, p := range b.list(t) {
			if p.DeletionTimestamp == nil {
				have[strings.TrimPrefix(p.Spec.Containers[0].Image, "example.com/agent:")]++
			}
		}
		if fmt.Sprint(have) != fmt.Sprint(want) {
			return fmt.Errorf("they are %v", have)
		}
		return nil
	})
}

// badImage has an image that cannot be pulled. A pod that goes meanwhile comes back as it was.
func (b *beside) badImage(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:fail")
	b.phase(t, "Halted")
	b.unchanged(t, before, 2)
	b.with(t, map[string]int{"1": nodes - 2, "fail": 2})
	b.run(t, "why", "daemonset/agent", "--verdict", "FailedRevision").ends(t, 0).
		says(t, "image example.com/agent:fail cannot be pulled")
	b.seen(t, "Failed", "Degraded")
	b.kubectl(t, "wait", "ds/agent", "dsr/agent", "--for=condition=Stalled", "--timeout=1m")
	b.run(t, "kubectl", "rollout", "status", "ds/agent", "--timeout=1s").ends(t, 1).
		says(t, "rollout status is only available for RollingUpdate strategy type")
	b.lose(t, "1")
	b.with(t, map[string]int{"1": nodes - 2, "fail": 2})
	b.seen(t, "Failed", "Degraded") // kube-controller-manager has written the status meanwhile
	b.run(t, "rollout", "abort", "daemonset/agent").ends(t, 0).says(t, "is aborted")
	b.phase(t, "RolledBack")
	b.images(t, "example.com/agent:1")
	b.unchanged(t, before, 3)
	b.seen(t, "Failed", "Degraded")
	b.kubectl(t, "apply", "-f", "agent.yaml")
	b.kubectl(t, "wait", "dsr/agent", "--for=condition=Complete", "--timeout=1m")
	b.phase(t, "Complete")
	b.seen(t, "Current", "Healthy")
	b.unchanged(t, before, 3)
}

// lose deletes one pod that has an image.
func (b *beside) lose(t *testing.T, image string) {
	t.Helper()
	for _, p := range b.list(t) {
		if p.Spec.Containers[0].Image == "example.com/agent:"+image && p.DeletionTimestamp == nil {
			b.kubectl(t, "delete", "pod", p.Name, "--wait=true")
			return
		}
	}
	t.Fatalf("no pod has %s", image)
}

// goodImage goes to the canary, and on when somebody approves.
func (b *beside) goodImage(t *testing.T) {
	b.run(t, "plan", "-f", "agent.yaml").ends(t, 0).says(t, "nothing changes")
	b.run(t, "plan", "-f", "agent-2.yaml").says(t, "12 nodes: 12 change", "canary 2", "then approval")
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "WaitingForApproval")
	b.seen(t, "InProgress", "Suspended")
	b.same(t, "agent-2.yaml")
	b.with(t, map[string]int{"1": nodes - 2, "2": 2})
	b.lose(t, "1")
	b.lose(t, "2")
	b.with(t, map[string]int{"1": nodes - 2, "2": 2})
	b.phase(t, "WaitingForApproval")
	b.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0).says(t, "is approved")
	b.run(t, "rollout", "status", "daemonset/agent", "--timeout=2m").ends(t, 0).says(t, "Complete")
	b.images(t, "example.com/agent:2")
	b.stored(t, true)
	b.kubectl(t, "wait", "ds/agent", "--for=condition=Reconciling=false", "--timeout=1m")
	b.seen(t, "Current", "Healthy")
}

// maintained has somebody work on a node while a change goes over all others.
func (b *beside) maintained(t *testing.T) {
	const node = "sim-0001"
	says := func(status string) {
		b.kubectl(t, "patch", "node", node, "--subresource=status", "--type=strategic", "-p",
			`{"status":{"conditions":[{"type":"MaintenanceInProgress","status":"`+status+`","reason":"Kernel"}]}}`)
	}
	says("True")
	b.kubectl(t, "apply", "-f", "agent.yaml")
	b.phase(t, "WaitingForApproval")
	b.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0)
	b.phase(t, "Complete")
	b.with(t, map[string]int{"1": nodes - 1, "2": 1})
	b.run(t, "why", "daemonset/agent", "--verdict", "InMaintenance").ends(t, 0).
		says(t, node, "in maintenance", "MaintenanceInProgress")
	says("False")
	b.images(t, "example.com/agent:1")
	b.phase(t, "Complete")
}

// front takes connections in turn to replicas, as a Service does.
type front struct {
	at   string
	to   atomic.Pointer[[]string]
	next atomic.Int64
	open sync.Map // of connections
}

// cut ends the connections that there are.
func (f *front) cut() {
	f.open.Range(func(c, _ any) bool {
		_ = c.(net.Conn).Close()
		return true
	})
}

func newFront(t *testing.T) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{at: l.Addr().String()}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			go f.pass(from)
		}
	}()
	return f
}

// pass connects one client with the next replica that takes it.
func (f *front) pass(from net.Conn) {
	defer from.Close()
	f.open.Store(from, nil)
	defer f.open.Delete(from)
	at := f.to.Load()
	if at == nil {
		return
	}
	first := int(f.next.Add(1))
	for i := range *at {
		to, err := net.Dial("tcp", (*at)[(first+i)%len(*at)])
		if err != nil {
			continue
		}
		defer to.Close()
		go func() {
			_, _ = io.Copy(to, from) // It ends with either side.
			_ = to.Close()
		}()
		_, _ = io.Copy(from, to)
		return
	}
}
