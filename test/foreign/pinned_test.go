package foreign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/pinning"
)

// withPinned has images be pinned. One node may fail.
const withPinned = `apiVersion: everynode.io/v1alpha1
kind: RolloutPolicy
metadata: {name: agents, namespace: default}
spec:
  selector: {matchLabels: {tier: agent}}
  waves:
  - {name: canary, count: 2, soak: 5s}
  failure: {max: 1, min: 1, startDeadline: 1m, restarts: 2, then: Rollback}
  images: Pinned
`

// moving has tags that name another image all the time, a registry that nodes may not reach, and images that take time.
const moving = `tags: {move: 3s}
faults:
- {name: registry, nodes: {matchLabels: {registry: away}}, pods: {image: "example.com/agent*"}, pullError: {message: no route to host}}
- {name: slow, pods: {image: "example.com/agent:slow"}, slowPull: {takes: 8s}}
- {name: never, pods: {image: "example.com/agent:never"}, slowPull: {takes: 1h}}
`

// TestPinnedBesideKubernetes has all nodes run the same bits where kube-controller-manager makes the pods, though tags
// name others all the time.
func TestPinnedBesideKubernetes(t *testing.T) {
	b := &beside{cluster: startWith(t, nodes, moving)}
	b.front = newFront(t)
	b.prepares(t)
	b.begins(t)
	defer b.watchesAsking(t)(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"pinning is turned on, and no pod restarts", b.pinsWhatRuns},
		{"all nodes get what the first canary got", b.pinsAnother},
		{"who goes back gets the old digest", b.pinsTheWayBack},
		{"a first node that cannot pull gives way", b.pinsElsewhere},
		{"controllers are killed while the first node pulls", b.pinsThroughDeath},
		{"a new DaemonSet has one digest from the first pod on", b.pinsNew},
		{"a pod that is made while nobody answers is replaced", b.pinsUnanswered},
		{"pinning is turned off, and nobody waits any more", b.pinsNoMore},
		{"whoever leaves has nobody wait", b.leavesNobodyWaiting},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	b.refusals(besideAccount, 100)
}

// watchesAsking looks at all pods all the time. What it returns wants never more than one pod of a template to have
// asked the registry without an answer.
func (b *beside) watchesAsking(t *testing.T) func(*testing.T) {
	t.Helper()
	watch, err := b.client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	var mu sync.Mutex
	var most int
	var when string
	go func() {
		pods := map[types.UID]*corev1.Pod{}
		for e := range watch.ResultChan() {
			p, is := e.Object.(*corev1.Pod)
			if !is {
				continue
			}
			pods[p.UID] = p
			if e.Type == "DELETED" {
				delete(pods, p.UID)
			}
			asking := map[string][]string{}
			for _, p := range pods {
				_, through := pinning.LetThrough(p)
				if len(p.OwnerReferences) == 0 {
					continue // it waits for nobody
				}
				if through && p.DeletionTimestamp == nil && !pinning.IsGated(&p.Spec) && !pinning.HasPulled(p) && !cannotPull(p) {
					of := p.Labels["app"] + " " + p.Labels[appsv1.ControllerRevisionHashLabelKey]
					asking[of] = append(asking[of], p.Name)
				}
			}
			mu.Lock()
			for of, names := range asking {
				if len(names) > most {
					most, when = len(names), fmt.Sprintf("%s: %v", of, names)
				}
			}
			mu.Unlock()
		}
	}()
	return func(t *testing.T) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if most != 1 {
			t.Errorf("%d pods asked the registry at one time, want one: %s", most, when)
		}
	}
}

func cannotPull(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Waiting != nil && strings.Contains(s.State.Waiting.Reason, "ImagePull")
	})
}

// podsOf are the pods of a DaemonSet that stay.
func (b *beside) podsOf(t *testing.T, app string) []corev1.Pod {
	t.Helper()
	list, err := b.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// oneDigest waits until all pods of a DaemonSet run the same bits, of which one asked for the tag, and returns the digest.
func (b *beside) oneDigest(t *testing.T, app string) (digest string) {
	t.Helper()
	await(t, "all pods of "+app+" run the same bits", func(context.Context) error {
		ids, asked := map[string]int{}, 0
		pods := b.podsOf(t, app)
		for i := range pods {
			p := &pods[i]
			if len(p.Status.ContainerStatuses) == 0 {
				return fmt.Errorf("pod %s has not started: %v", p.Name, p.Spec.SchedulingGates)
			}
			_, digest, _ = strings.Cut(p.Status.ContainerStatuses[0].ImageID, "@")
			ids[digest]++
			if !strings.Contains(p.Spec.Containers[0].Image, "@") {
				asked++
			}
		}
		if len(ids) != 1 || digest == "" || asked > 1 || len(pods) != nodes {
			return fmt.Errorf("there are %d pods, of which %d asked, with %v", len(pods), asked, ids)
		}
		return nil
	})
	return digest
}

// saysDigest wants the rollout to say which digest its target has.
func (b *beside) saysDigest(t *testing.T, app, digest string) {
	t.Helper()
	await(t, "the rollout says "+digest, func(context.Context) error {
		said := b.kubectl(t, "get", "dsr", app, "-o", "jsonpath={.status.images}")
		if !strings.Contains(said, digest) || strings.Contains(said, "message") {
			return fmt.Errorf("it says %s", said)
		}
		return nil
	})
}

// pinsWhatRuns takes what runs at its word, whatever each node got: who loses its pod gets the oldest one's.
func (b *beside) pinsWhatRuns(t *testing.T) {
	before := b.pods(t)
	oldest := slices.MinFunc(b.list(t), func(a, c corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(c.CreationTimestamp.Time), strings.Compare(a.Name, c.Name))
	})
	_, digest, _ := strings.Cut(oldest.Status.ContainerStatuses[0].ImageID, "@")
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", withPinned))
	b.stored(t, true)
	b.phase(t, "Complete")
	b.saysDigest(t, "agent", digest)
	b.samePods(t, before)
	b.lose(t, "1")
	b.lose(t, "1")
	await(t, "both came back with that digest", func(context.Context) error {
		have := 0
		for _, p := range b.podsOf(t, "agent") {
			if p.Spec.Containers[0].Image == "example.com/agent@"+digest {
				have++
			}
		}
		if have != 2 {
			return fmt.Errorf("%d have", have)
		}
		return nil
	})
	b.unchanged(t, before, 2)
	b.same(t, "agent.yaml")
}

// pinsAnother goes over the canary to all nodes, while the tag moves.
func (b *beside) pinsAnother(t *testing.T) {
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "Complete")
	digest := b.oneDigest(t, "agent")
	b.saysDigest(t, "agent", digest)
	b.same(t, "agent-2.yaml")
	for range 2 {
		pods := b.podsOf(t, "agent")
		b.kubectl(t, "delete", "pod", pods[0].Name, "--wait=true")
	}
	b.kubectl(t, "taint", "node", "sim-0012", "example.com/repair=yes:NoExecute")
	await(t, "a node has lost its pod", func(context.Context) error {
		if pods := b.podsOf(t, "agent"); len(pods) != nodes-1 {
			return fmt.Errorf("there are %d pods", len(pods))
		}
		return nil
	})
	b.kubectl(t, "taint", "node", "sim-0012", "example.com/repair-")
	if again := b.oneDigest(t, "agent"); again != digest {
		t.Errorf("pods that are made again, and of a node that joins, run %s, and ran %s", again, digest)
	}
	b.phase(t, "Complete")
}

// pinsTheWayBack has an image that nobody has.
func (b *beside) pinsTheWayBack(t *testing.T) {
	digest, before := b.oneDigest(t, "agent"), b.pods(t)
	b.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:fail")
	b.phase(t, "RolledBack")
	if again := b.oneDigest(t, "agent"); again != digest {
		t.Errorf("pods that went back run %s, and ran %s", again, digest)
	}
	b.unchanged(t, before, 2)
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "Complete")
	b.unchanged(t, before, 2)
}

// pinsElsewhere has the first canary not reach the registry.
func (b *beside) pinsElsewhere(t *testing.T) {
	old := b.oneDigest(t, "agent")
	b.kubectl(t, "label", "node", "sim-0001", "registry=away")
	b.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:3")
	await(t, "eleven nodes have the digest", func(context.Context) error {
		have := map[string]int{}
		for _, p := range b.podsOf(t, "agent") {
			if s := p.Status.ContainerStatuses; len(s) > 0 && p.Spec.NodeName != "sim-0001" {
				have[s[0].ImageID]++
			}
		}
		if len(have) != 1 || have["example.com/agent@"+old] > 0 || !slices.Contains(slices.Collect(maps.Values(have)), nodes-1) {
			return fmt.Errorf("they have %v", have)
		}
		return nil
	})
	// Its pod is made again with the digest, and for a moment says nothing of that yet.
	await(t, "it is told why the first canary fails", func(context.Context) error {
		a := b.run(t, "why", "daemonset/agent", "--verdict", "FailedRevision")
		if !strings.Contains(a.out, "sim-0001") || !strings.Contains(strings.Join(strings.Fields(a.out), " "), "cannot be pulled") {
			return errors.New(a.out)
		}
		return nil
	})
	b.kubectl(t, "label", "node", "sim-0001", "registry-")
	b.kubectl(t, "label", "node", "sim-0001", "everynode.io/seen=again")
	b.oneDigest(t, "agent")
	b.phase(t, "Complete")
}

// pinsThroughDeath kills all replicas while the first node pulls, and before one can tell.
func (b *beside) pinsThroughDeath(t *testing.T) {
	b.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:slow")
	await(t, "the first node pulls", func(context.Context) error {
		for _, p := range b.podsOf(t, "agent") {
			if p.Spec.Containers[0].Image == "example.com/agent:slow" && p.Spec.NodeName != "" {
				return nil
			}
		}
		return fmt.Errorf("no node does")
	})
	b.kill(t, b.replicas...)
	b.begins(t)
	b.phase(t, "Complete")
	b.saysDigest(t, "agent", b.oneDigest(t, "agent"))
}

// pinsUnanswered kills all replicas. Pods that are made then run what their tag names, until somebody is back.
func (b *beside) pinsUnanswered(t *testing.T) {
	digest := b.oneDigest(t, "agent")
	time.Sleep(10 * time.Second) // clocks may differ by that
	b.kill(t, b.replicas...)
	before := b.pods(t)
	for _, p := range slices.DeleteFunc(b.podsOf(t, "agent"), func(p corev1.Pod) bool {
		return !strings.Contains(p.Spec.Containers[0].Image, "@")
	})[:3] {
		b.kubectl(t, "delete", "pod", p.Name, "--wait=true")
	}
	await(t, "three came back with what the tag names", func(context.Context) error {
		other := 0
		for _, p := range b.podsOf(t, "agent") {
			if s := p.Status.ContainerStatuses; len(s) > 0 && s[0].ImageID != "" && !strings.HasSuffix(s[0].ImageID, digest) {
				other++
			}
		}
		if other != 3 {
			return fmt.Errorf("%d did", other)
		}
		return nil
	})
	b.begins(t)
	b.event(t, "WrongRevision", "3 nodes, such as ")
	if again := b.oneDigest(t, "agent"); again != digest {
		t.Errorf("pods run %s, and ran %s", again, digest)
	}
	b.phase(t, "Complete")
	b.unchanged(t, before, 3)
	after := b.pods(t)
	time.Sleep(3 * time.Second)
	b.samePods(t, after)
}

// second is another DaemonSet, with an image.
func second(name, tag string) string {
	return strings.NewReplacer("name: agent, namespace", "name: "+name+", namespace", "app: agent", "app: "+name,
		"agent:1", "agent:"+tag).Replace(agent)
}

// pinsNew applies a DaemonSet whose pods kube-controller-manager makes all at once.
func (b *beside) pinsNew(t *testing.T) {
	since := time.Now()
	b.kubectl(t, "apply", "-f", b.write("second.yaml", second("second", "slow")))
	b.saysDigest(t, "second", b.oneDigest(t, "second"))
	t.Logf("all nodes had it after %v", time.Since(since).Round(100*time.Millisecond))
	b.kubectl(t, "delete", "ds/second")
	// What waits when its DaemonSet goes alone is let through.
	b.kubectl(t, "apply", "-f", b.write("orphans.yaml", second("orphans", "never")))
	b.waiting(t, "orphans", nodes-1)
	b.kubectl(t, "delete", "ds/orphans", "--cascade=orphan")
	b.waiting(t, "orphans", 0)
	b.kubectl(t, "delete", "pod", "-l", "app=orphans", "--wait=false")
}

// waiting waits until so many pods of a DaemonSet wait.
func (b *beside) waiting(t *testing.T, app string, want int) {
	t.Helper()
	await(t, fmt.Sprintf("%d pods of %s wait", want, app), func(context.Context) error {
		pods, waits := b.podsOf(t, app), 0
		for i := range pods {
			if pinning.IsGated(&pods[i].Spec) {
				waits++
			}
		}
		if waits != want || len(pods) != nodes {
			return fmt.Errorf("%d of %d do", waits, len(pods))
		}
		return nil
	})
}

// pinsNoMore has pods wait for a pull that takes an hour.
func (b *beside) pinsNoMore(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "apply", "-f", b.write("third.yaml", second("third", "never")))
	b.waiting(t, "third", nodes-1)
	time.Sleep(3 * time.Second)
	b.waiting(t, "third", nodes-1)
	b.run(t, "rollout", "status", "daemonset/third", "--timeout=1s").says(t, "all others wait for the digests that the first node gets")
	b.kubectl(t, "apply", "-f", b.write("as-written.yaml", strings.Replace(withPinned, "images: Pinned", "images: AsWritten", 1)))
	b.waiting(t, "third", 0)
	b.kubectl(t, "delete", "ds/third")
	b.samePods(t, before)
	b.kubectl(t, "apply", "-f", "policy.yaml")
	b.saysDigest(t, "agent", "sha256:") // until then pods of another DaemonSet may be as they are written
}

// leavesNobodyWaiting gives everything back while pods wait.
func (b *beside) leavesNobodyWaiting(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "apply", "-f", b.write("fourth.yaml", second("fourth", "never")))
	b.waiting(t, "fourth", nodes-1)
	b.leave(t).ends(t, 0).says(t, "11 pods waited for digests of their images, and are made again as they are written")
	b.waiting(t, "fourth", 0)
	b.kill(t, b.replicas...)
	b.stored(t, false)
	b.samePods(t, before)
	b.kubectl(t, "delete", "ds/fourth")
}
