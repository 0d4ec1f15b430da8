package foreign

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// byZone lets all other nodes follow the canary, but one of each zone at a time, and takes back what fails.
const byZone = `apiVersion: everynode.io/v1alpha1
kind: RolloutPolicy
metadata: {name: agents, namespace: default}
spec:
  selector: {matchLabels: {tier: agent}}
  waves:
  - {name: canary, count: 1}
  domains:
  - {key: topology.kubernetes.io/zone, maxUnavailable: 1}
  failure: {max: 5%, min: 1, startDeadline: 1m, restarts: 2, then: Rollback}
`

// TestStoriesBesideKubernetes has what policies promise hold where kube-controller-manager makes the pods.
func TestStoriesBesideKubernetes(t *testing.T) {
	b := &beside{cluster: start(t, nodes)}
	b.front = newFront(t)
	b.prepares(t)
	b.begins(t)
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", byZone))
	b.stored(t, true)
	b.phase(t, "Complete")
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"what fails goes back by itself", b.goesBack},
		{"domains hold, and a change that is paused stands still", b.domains},
		{"a change waits for its window", b.window},
		{"the control plane and the controllers lose their power", b.powerLoss},
		{"the rollout is deleted while nobody runs", b.erased},
		{"a node loses its power", b.nodeLost},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	b.refusals(besideAccount, 100)
}

// goesBack has an image that cannot be pulled.
func (b *beside) goesBack(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:fail")
	b.phase(t, "RolledBack")
	b.images(t, "example.com/agent:1")
	b.unchanged(t, before, 1)
	b.seen(t, "Failed", "Degraded")
	b.kubectl(t, "apply", "-f", "agent.yaml")
	b.phase(t, "Complete")
	b.unchanged(t, before, 1)
}

// domains changes all nodes, and watches how many of each zone are without a daemon.
func (b *beside) domains(t *testing.T) {
	worst := b.watchZones(t)
	b.run(t, "rollout", "pause", "daemonset/agent").ends(t, 0)
	before := b.pods(t)
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "Paused")
	b.samePods(t, before)
	b.run(t, "rollout", "resume", "daemonset/agent").ends(t, 0)
	b.phase(t, "Complete")
	b.images(t, "example.com/agent:2")
	for zone, n := range worst() {
		if n != 1 {
			t.Errorf("%d nodes of zone %s were without a daemon at once, want 1", n, zone)
		}
	}
}

// watchZones counts, until it is asked, how many nodes of each zone are without a daemon that is ready, and returns the
// most of them at one time.
func (b *beside) watchZones(t *testing.T) (most func() map[string]int) {
	t.Helper()
	list, err := b.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ready, worst := map[string]types.UID{}, map[string]int{}
	tell := func(p *corev1.Pod, gone bool) {
		is := !gone && p.DeletionTimestamp == nil
		for _, c := range p.Status.Conditions {
			is = is && (c.Type != corev1.PodReady || c.Status == corev1.ConditionTrue)
		}
		switch {
		case is && p.Status.Phase == corev1.PodRunning:
			ready[p.Spec.NodeName] = p.UID
		case ready[p.Spec.NodeName] == p.UID:
			delete(ready, p.Spec.NodeName)
		}
	}
	for i := range list.Items {
		tell(&list.Items[i], false)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &toolscache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return b.client.CoreV1().Pods("default").Watch(ctx, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for e := range w.ResultChan() {
			p, is := e.Object.(*corev1.Pod)
			if !is {
				t.Errorf("the watch says %s %+v", e.Type, e.Object)
				continue
			}
			tell(p, e.Type == watch.Deleted)
			without := map[string]int{}
			for i := range nodes {
				zone := string("abc"[i%3])
				if ready[fmt.Sprintf("sim-%04d", i+1)] == "" {
					without[zone]++
				}
				worst[zone] = max(worst[zone], without[zone])
			}
		}
	})
	return func() map[string]int {
		cancel()
		done.Wait()
		return worst
	}
}

// window has a change come when it is not its time, and opens the window.
func (b *beside) window(t *testing.T) {
	before, day := b.pods(t), time.Now().UTC().Add(72*time.Hour).Format("Mon")
	b.kubectl(t, "patch", "rp/agents", "--type=merge", "-p",
		`{"spec":{"windows":[{"days":["`+day+`"],"from":"00:00","to":"00:01"}]}}`)
	b.kubectl(t, "apply", "-f", "agent.yaml")
	b.phase(t, "OutsideWindow")
	b.seen(t, "InProgress", "Suspended")
	b.lose(t, "2")
	b.images(t, "example.com/agent:2")
	b.unchanged(t, before, 1)
	b.kubectl(t, "patch", "rp/agents", "--type=merge", "-p", `{"spec":{"windows":null}}`)
	b.phase(t, "Complete")
	b.images(t, "example.com/agent:1")
}

// powerLoss kills everything but the nodes in the middle of a change, and starts it again.
func (b *beside) powerLoss(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", strings.Replace(byZone, "count: 1}", "count: 1, approval: Manual}", 1)))
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "WaitingForApproval")
	b.kill(t, b.replicas...)
	b.kill(t, b.manager)
	b.kill(t, b.plane...)
	for i, p := range b.plane {
		b.plane[i] = b.again(p)
	}
	await(t, "the API is ready", func(ctx context.Context) error {
		return b.client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	for i, p := range b.replicas {
		b.replicas[i] = b.again(p)
	}
	b.manager = b.again(b.manager)
	b.phase(t, "WaitingForApproval")
	b.unchanged(t, before, 1)
	b.lose(t, "1")
	b.with(t, map[string]int{"1": nodes - 1, "2": 1})
	b.run(t, "rollout", "approve", "daemonset/agent").ends(t, 0)
	b.phase(t, "Complete")
	b.images(t, "example.com/agent:2")
}

// erased has somebody delete what is known of a change while both controllers are dead. Nothing may begin by that.
func (b *beside) erased(t *testing.T) {
	b.kubectl(t, "apply", "-f", "agent.yaml")
	b.phase(t, "WaitingForApproval")
	before := b.pods(t)
	b.kill(t, b.replicas...)
	b.kubectl(t, "delete", "dsr/agent")
	for i, p := range b.replicas {
		b.replicas[i] = b.again(p)
	}
	b.phase(t, "Paused")
	b.run(t, "rollout", "status", "daemonset/agent", "--timeout=1s").says(t, "its DaemonSetRollout was deleted while it was")
	b.samePods(t, before)
	b.run(t, "rollout", "resume", "daemonset/agent").ends(t, 0)
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", byZone))
	b.phase(t, "Complete")
	b.images(t, "example.com/agent:1")
}

// nodeLost has a node without power during a whole change. Other zones do not wait for it; of its own none may be
// without a daemon besides. When it is back they get the change too.
func (b *beside) nodeLost(t *testing.T) {
	const lost = "sim-0008"
	b.kubectl(t, "annotate", "node", lost, "simulated.everynode.io/fault=powerLoss")
	await(t, "the node is known to be lost", func(ctx context.Context) error {
		n, err := b.client.CoreV1().Nodes().Get(ctx, lost, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
				return nil
			}
		}
		return fmt.Errorf("it has %+v", n.Status.Conditions)
	})
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "Complete")
	b.with(t, map[string]int{"2": nodes - nodes/3, "1": nodes / 3})
	b.run(t, "why", lost).ends(t, 0).says(t, "NodeFault")
	b.kubectl(t, "annotate", "node", lost, "simulated.everynode.io/fault-")
	b.images(t, "example.com/agent:2")
	b.phase(t, "Complete")
}
