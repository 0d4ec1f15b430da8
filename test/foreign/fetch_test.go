package foreign

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod/fetchpodtest"
)

// withFetch has all nodes fetch images before their turn.
const withFetch = `apiVersion: everynode.io/v1alpha1
kind: RolloutPolicy
metadata: {name: agents, namespace: default}
spec:
  selector: {matchLabels: {tier: agent}}
  waves:
  - {name: canary, count: 1, fetch: true}
  - {name: others, nodes: {}, maxUnavailable: 2, fetch: true}
  failure: {startDeadline: 1m, then: Rollback}
`

const slowRegistry = `faults:
- {name: missing, pods: {image: "example.com/agent:missing"}, pullError: {message: "not found"}}
- {name: slow, pods: {image: "example.com/agent:slow"}, slowPull: {takes: 3s}}
`

// TestFetchBesideKubernetes has pods pull images before daemons are taken away, where kube-controller-manager makes the
// daemons.
func TestFetchBesideKubernetes(t *testing.T) {
	b := &beside{cluster: startWith(t, nodes, slowRegistry)}
	b.front = newFront(t)
	b.prepares(t)
	b.kubectl(t, "apply", "-f", b.example(t, "beside-fetch-rbac.yaml"))
	b.begins(t, "--fetch-image=example.com/everynode:1")
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", withFetch))
	b.phase(t, "Complete")
	b.stored(t, true)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"an image that nobody has takes no daemon away", b.fetchesNothing},
		{"daemons stay until their images are there", b.fetchesSlowly},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	b.refusals(besideAccount, 100)
}

func (b *beside) fetchesNothing(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:missing")
	b.phase(t, "RolledBack")
	b.samePods(t, before)
	b.nobodyFetches(t)
}

func (b *beside) fetchesSlowly(t *testing.T) {
	fetched := b.sees(t)
	b.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:slow")
	b.phase(t, "Complete")
	b.settled(t)
	h := fetched()
	if len(h.Has) != nodes || h.Most > 2 || len(h.Early) > 0 {
		t.Errorf("pods fetched on %d nodes, at most %d at once; daemons were taken early from %v", len(h.Has), h.Most, h.Early)
	}
}

// sees watches pods. What it returns waits until no pod fetches any more, and tells what those did that were there.
func (b *beside) sees(t *testing.T) (fetched func() fetchpodtest.History) {
	t.Helper()
	seen, err := b.client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan fetchpodtest.History, 1)
	go func() { told <- fetchpodtest.Read(seen) }()
	return func() fetchpodtest.History {
		b.nobodyFetches(t)
		seen.Stop()
		return <-told
	}
}

// nobodyFetches waits until no pod fetches any more.
func (b *beside) nobodyFetches(t *testing.T) {
	t.Helper()
	await(t, "no pod fetches any more", func(ctx context.Context) error {
		list, err := b.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: fetchpod.Label})
		if err == nil && len(list.Items) > 0 {
			return fmt.Errorf("there are %d, such as %s: %+v", len(list.Items), list.Items[0].Name, list.Items[0].Status)
		}
		return err
	})
}
