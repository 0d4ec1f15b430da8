package foreign

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/objects/pod"
)

// TestLateReplicaKubernetes has pods be answered for by a replica alone that sees half a minute late what happens,
// while a canary goes, and another node is one in its place. That one gets the new revision at once.
func TestLateReplicaKubernetes(t *testing.T) {
	b := &beside{cluster: start(t, nodes)}
	b.front, b.slow = newFront(t), newSlow(t, b.cluster)
	b.prepares(t)
	b.begins(t)
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", policy))
	b.phase(t, "Complete")
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "WaitingForApproval")
	if b.leader(t) == 1 {
		b.replicas[1].stop()
		await(t, "the other replica leads", func(context.Context) error {
			if b.leader(t) == 1 {
				return fmt.Errorf("it does not")
			}
			return nil
		})
		b.replicas[1] = b.again(b.replicas[1])
		await(t, "the replica answers", func(ctx context.Context) error { return reachable(ctx, b.shows[1]) })
	}
	at := (*b.front.to.Load())[1:]
	b.front.to.Store(&at)
	b.front.cut()
	b.slow.by.Store(int64(30 * time.Second))

	before := canaries(t, nil)
	made := b.watchesMade(t)
	b.kubectl(t, "delete", "node", before[0])
	b.with(t, map[string]int{"1": nodes - 3, "2": 2})
	b.phase(t, "WaitingForApproval")
	for node, times := range made() {
		if times > 1 {
			t.Errorf("on %s %d pods were made", node, times)
		}
	}
	for _, p := range b.list(t) {
		if pod.TargetNode(&p) == before[0] {
			continue // it goes with its node
		}
		is, want := p.Spec.Containers[0].Image, "example.com/agent:1"
		if slices.Contains(canaries(t, before[:1]), pod.TargetNode(&p)) {
			want = "example.com/agent:2"
		}
		if is != want {
			t.Errorf("%s has %s, want %s", pod.TargetNode(&p), is, want)
		}
	}
}

// TestRolloutIsDeletedKubernetes has somebody delete a rollout in the middle of a change while the replica that leads
// sees late what happens. A pod that goes just then does not come back before it has made the next one, and comes as it
// was.
func TestRolloutIsDeletedKubernetes(t *testing.T) {
	b := &beside{cluster: start(t, nodes)}
	b.front, b.slow = newFront(t), newSlow(t, b.cluster)
	b.prepares(t)
	b.begins(t)
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", policy))
	b.phase(t, "Complete")
	if b.leader(t) == 0 {
		b.replicas[0].stop()
		await(t, "the replica that is late leads", func(context.Context) error {
			if b.leader(t) == 0 {
				return fmt.Errorf("it does not")
			}
			return nil
		})
		at := (*b.front.to.Load())[1:]
		b.front.to.Store(&at)
		b.front.cut()
		b.shows = b.shows[1:]
	}
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "WaitingForApproval")
	before := b.list(t)
	at := slices.IndexFunc(before, func(p corev1.Pod) bool { return p.Spec.Containers[0].Image == "example.com/agent:1" })

	b.slow.by.Store(int64(15 * time.Second))
	b.kubectl(t, "delete", "daemonsetrollout", "agent", "--wait=true")
	b.kubectl(t, "delete", "pod", before[at].Name, "--wait=false")
	b.shown(t, `everynode_beside_answers_total{about="pod",answer="later"}`)
	b.phase(t, "Paused")
	b.with(t, map[string]int{"1": nodes - 2, "2": 2})
	made := map[string]string{}
	for _, p := range before {
		made[pod.TargetNode(&p)] = p.Spec.Containers[0].Image
	}
	for _, p := range b.list(t) {
		if node, is := pod.TargetNode(&p), p.Spec.Containers[0].Image; is != made[node] {
			t.Errorf("%s has %s, and had %s", node, is, made[node])
		}
	}
}

// canaries are the nodes in the first step, without those that have gone.
func canaries(t *testing.T, gone []string) (out []string) {
	t.Helper()
	var p v1alpha1.RolloutPolicy
	if err := yaml.Unmarshal([]byte(policy), &p); err != nil {
		t.Fatal(err)
	}
	compiled, err := rolloutpolicy.Compile(&p.Spec, time.LoadLocation)
	if err != nil {
		t.Fatal(err)
	}
	fleet := rolloutpolicy.NewFleet(compiled)
	var all []string
	for i := range nodes {
		name := fmt.Sprintf("sim-%04d", i+1)
		if !slices.Contains(gone, name) {
			all = append(all, name)
			fleet.Set(name, nil)
		}
	}
	return slices.DeleteFunc(all, func(name string) bool {
		step, _ := fleet.Step(name)
		return step.Wave > 0
	})
}

// watchesMade counts from now on how many pods are made on each node; what is returned tells.
func (b *beside) watchesMade(t *testing.T) func() map[string]int {
	t.Helper()
	pods := b.client.CoreV1().Pods("default")
	list, err := pods.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	var mu sync.Mutex
	made := map[string]int{}
	go func() {
		for e := range w.ResultChan() {
			p, is := e.Object.(*corev1.Pod)
			if is && e.Type == watch.Added {
				mu.Lock()
				made[pod.TargetNode(p)]++
				mu.Unlock()
			}
		}
	}()
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		out := map[string]int{}
		for node, times := range made {
			out[node] = times
		}
		return out
	}
}
