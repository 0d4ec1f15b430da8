package foreign

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/testenv/eventually"
	"github.com/everynode/everynode/test/scale/usage"
)

var (
	compared = flag.Int("compared", 0, "how many simulated nodes TestComparedWithKubernetesAlone has, such as 2000; it is skipped with 0")
	turns    = flag.Int("turns", 3, "how often each of the two is measured there, in turn")
)

// comparedLimit is how many daemons may be away at one time, in both ways.
const comparedLimit = "10%"

// noPauses is a policy that asks for nothing but what the DaemonSet's own strategy asks for.
const noPauses = `apiVersion: everynode.io/v1alpha1
kind: RolloutPolicy
metadata: {name: agents, namespace: default}
spec:
  selector: {matchLabels: {tier: agent}}
  waves: [{name: all, nodes: {}, maxUnavailable: ` + comparedLimit + `}]
`

// TestComparedWithKubernetesAlone changes all pods of a DaemonSet by turns with kube-controller-manager alone, and with
// Everynode beside it, and says how long each took and how much memory the replicas had. Nobody's requests are limited.
func TestComparedWithKubernetesAlone(t *testing.T) {
	if *compared == 0 {
		t.Skip("-compared says how many nodes there are")
	}
	c := folder(t)
	c.hurry = []string{"--kube-api-qps=10000", "--kube-api-burst=20000"}
	c.patient = []string{"--node-monitor-grace-period=15m"}
	c.startPlane()
	b := &beside{cluster: c, front: newFront(t)}
	long := patience + time.Duration(*compared)*200*time.Millisecond
	b.simulate(*compared, "")
	eventually.Nil(t, long, "all nodes are there", func(ctx context.Context) error {
		list, err := b.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != *compared {
			err = fmt.Errorf("%d nodes", len(list.Items))
		}
		return err
	})
	b.kinds(t)
	b.kubectl(t, "apply", "-f", b.write("agent.yaml", strings.Replace(agent, "maxUnavailable: 3", "maxUnavailable: "+comparedLimit, 1)))
	version := 1
	eventually.Nil(t, long, "all nodes have the daemon", b.allRun(version))
	change := func() time.Duration {
		version++
		since := time.Now()
		b.kubectl(t, "set", "image", "ds/agent", fmt.Sprintf("agent=example.com/agent:%d", version))
		eventually.Nil(t, long, "all nodes have the new daemon", b.allRun(version))
		return time.Since(since)
	}
	var alone, with []time.Duration
	var memory []string
	for turn := range *turns {
		before := b.used(t)
		took := change()
		alone = append(alone, took)
		t.Logf("turn %d: kube-controller-manager alone: %.1f s; %s", turn+1, took.Seconds(), b.used(t).since(before))

		if turn > 0 {
			b.stays(t)
		}
		b.begins(t, "--kube-api-qps=10000", "--kube-api-burst=20000")
		if turn == 0 {
			b.kubectl(t, "apply", "-f", b.write("policy.yaml", noPauses))
		}
		b.stored(t, true)
		eventually.Nil(t, long, "the rollout is complete", b.complete)
		before = b.used(t)
		took = change()
		used := b.used(t)
		eventually.Nil(t, long, "the rollout is complete", b.complete)
		with = append(with, took)
		memory = memory[:0]
		for _, p := range b.replicas {
			memory = append(memory, p.peak(t))
		}
		t.Logf("turn %d: with Everynode beside it: %.1f s; %s; the replicas had at most %s", turn+1, took.Seconds(),
			used.since(before), strings.Join(memory, " and "))
		b.leave(t).ends(t, 0)
		for _, p := range b.replicas {
			p.stop()
		}
	}
	slices.Sort(alone)
	slices.Sort(with)
	a, w := alone[len(alone)/2], with[len(with)/2]
	t.Logf("%d nodes, medians of %d: alone %.1f s, beside %.1f s, %.2f times", *compared, *turns, a.Seconds(), w.Seconds(), w.Seconds()/a.Seconds())
}

// allRun returns a check that kube-controller-manager counts a pod of that version of the image on each node, ready.
// To ask for all pods again and again would cost the API server more than the change does.
func (b *beside) allRun(version int) func(ctx context.Context) error {
	image := fmt.Sprintf("example.com/agent:%d", version)
	return func(ctx context.Context) error {
		ds, err := b.client.AppsV1().DaemonSets("default").Get(ctx, "agent", metav1.GetOptions{})
		if err != nil {
			return err
		}
		is, all := &ds.Status, int32(*compared)
		if ds.Spec.Template.Spec.Containers[0].Image != image || is.ObservedGeneration != ds.Generation ||
			is.UpdatedNumberScheduled != all || is.NumberAvailable != all {
			return fmt.Errorf("its status is %+v", is)
		}
		return nil
	}
}

// complete is nil once the rollout says that all is done.
func (b *beside) complete(ctx context.Context) error {
	out := b.run(b.t, "kubectl", "get", "dsr", "agent", "-o", "jsonpath={.status.phase} {.status.observedGeneration}")
	if !strings.HasPrefix(out.out, "Complete") {
		return fmt.Errorf("it says %s%s", out.out, out.errOut)
	}
	return nil
}

// used is the processor time that programs have used, and how many requests the API server has answered but for watches.
type used struct {
	time     map[string]time.Duration
	requests float64
}

func (b *beside) used(t *testing.T) used {
	t.Helper()
	out := used{time: map[string]time.Duration{}}
	for _, p := range slices.Concat(b.plane, []*process{b.manager, b.scheduler}, b.replicas) {
		if p.done != nil {
			out.time[p.name] = p.usage(t).CPU
		}
	}
	raw, err := b.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || strings.Contains(line, `verb="WATCH"`) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
		if err != nil {
			t.Fatal(err)
		}
		out.requests += n
	}
	return out
}

// since says what was used since then, of each program and for each node.
func (u used) since(then used) string {
	var each []string
	var sum time.Duration
	for _, name := range slices.Sorted(maps.Keys(u.time)) {
		is := u.time[name] - then.time[name]
		sum += is
		each = append(each, fmt.Sprintf("%s %.1f s", name, is.Seconds()))
	}
	return fmt.Sprintf("processor time %.1f ms and %.1f requests for each node (%s)", 1000*sum.Seconds()/float64(*compared),
		(u.requests-then.requests)/float64(*compared), strings.Join(each, ", "))
}

// peak is the most memory that a program had since it was started.
func (p *process) peak(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%d kB", p.usage(t).Peak>>10)
}

func (p *process) usage(t *testing.T) usage.Usage {
	t.Helper()
	u, err := usage.Of(p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
