package foreign

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
)

// perZone are two variants: daemons request a hundredth of their node's memory, but for those of zone a, which have
// threads.
func perZone(threads string) string {
	return `apiVersion: everynode.io/v1alpha1
kind: DaemonSetVariant
metadata: {name: by-size, namespace: default}
spec:
  daemonSets: {matchLabels: {tier: agent}}
  resources: {agent: {requests: {memory: "max(quantity('64Mi'), node.allocatable.memory * 0.01)"}}}
---
apiVersion: everynode.io/v1alpha1
kind: DaemonSetVariant
metadata: {name: zone-a, namespace: default}
spec:
  daemonSets: {matchLabels: {tier: agent}}
  nodes: {matchLabels: {topology.kubernetes.io/zone: a}}
  priority: 10
  patch: {spec: {containers: [{name: agent, ` + threads + `}]}}
`
}

// TestVariantsBesideKubernetes has pods differ from node to node where kube-controller-manager makes them.
func TestVariantsBesideKubernetes(t *testing.T) {
	b := &beside{cluster: start(t, nodes)}
	b.front = newFront(t)
	b.prepares(t)
	b.begins(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"without a policy none is used", b.noPolicyNoVariant},
		{"with one they travel in waves", b.variantsTravel},
		{"what is the same is not touched", b.oneZoneChanges},
		{"what admission found by the template is found again", b.foundAgain},
		{"a bad one stops at its canary", b.badVariant},
		{"a pod that is made while nobody answers is replaced", b.withoutVariant},
		{"a new template has its variants", b.templateUnderVariants},
		{"a new DaemonSet has them from the first pod", b.newVaried},
		{"whoever leaves keeps the pods", b.leavesVaried},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	b.refusals(besideAccount, 100)
}

// varied waits until that many pods that stay are as each text says: the variant by their mark, and what they have of
// it.
func (b *beside) varied(t *testing.T, of string, want map[string]int) {
	t.Helper()
	await(t, fmt.Sprintf("the pods are %v", want), func(ctx context.Context) error {
		list, err := b.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + of})
		if err != nil {
			return err
		}
		have := map[string]int{}
		for i := range list.Items {
			p := &list.Items[i]
			if p.DeletionTimestamp != nil {
				continue
			}
			c := &p.Spec.Containers[0]
			says := variant.MarkOf(&p.ObjectMeta).Variant
			for _, e := range c.Env {
				says += " " + e.Name + "=" + e.Value
			}
			if !c.Resources.Requests.Memory().IsZero() {
				says += " " + c.Resources.Requests.Memory().String()
			}
			if is := content.VariantsOf(p.Labels[content.RevisionLabel]) != ""; is != (says != "") {
				says += " of revision " + p.Labels[content.RevisionLabel]
			}
			have[says]++
		}
		if fmt.Sprint(have) != fmt.Sprint(want) {
			return fmt.Errorf("they are %v", have)
		}
		return nil
	})
}

func (b *beside) noPolicyNoVariant(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "apply", "-f", b.write("variants.yaml", perZone(`env: [{name: THREADS, value: "8"}]`)))
	await(t, "the variants say that they are not used", func(context.Context) error {
		is := b.kubectl(t, "get", "dsv", "by-size", "-o", "jsonpath={.status.conditions[?(@.type=='Applies')].message}")
		if !strings.Contains(is, "DaemonSet agent: it follows no RolloutPolicy") {
			return fmt.Errorf("it says %q", is)
		}
		return nil
	})
	b.lose(t, "1")
	b.varied(t, "agent", map[string]int{"": nodes})
	b.unchanged(t, before, 1)
}

func (b *beside) variantsTravel(t *testing.T) {
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", byZone))
	b.stored(t, true)
	b.varied(t, "agent", map[string]int{"by-size 336Mi": 8, "zone-a THREADS=8": 4})
	b.phase(t, "Complete")
	b.kubectl(t, "wait", "dsv", "--all", "--for=condition=Applies", "--timeout=1m")
	b.same(t, "agent.yaml")
	b.seen(t, "Current", "Healthy")
	b.lose(t, "1")
	b.varied(t, "agent", map[string]int{"by-size 336Mi": 8, "zone-a THREADS=8": 4})
}

func (b *beside) oneZoneChanges(t *testing.T) {
	before := b.pods(t)
	next := b.write("variants.yaml", perZone(`env: [{name: THREADS, value: "9"}]`))
	b.run(t, "plan", "-f", next).says(t, "12 nodes: 4 change")
	b.kubectl(t, "apply", "-f", next)
	b.varied(t, "agent", map[string]int{"by-size 336Mi": 8, "zone-a THREADS=9": 4})
	b.phase(t, "Complete")
	b.unchanged(t, before, 4)
}

// foundAgain gives one zone another class of priority. The pod that admission is asked about has the priority of none
// by then, which the API server refuses beside that class.
func (b *beside) foundAgain(t *testing.T) {
	text := strings.ReplaceAll(perZone(`env: [{name: THREADS, value: "9"}]`), "patch: {spec: {",
		"patch: {spec: {priorityClassName: system-node-critical, ")
	b.kubectl(t, "apply", "-f", b.write("critical.yaml", text))
	await(t, "the pods of one zone are critical", func(context.Context) error {
		critical := 0
		for _, p := range b.list(t) {
			if p.DeletionTimestamp == nil && p.Spec.Priority != nil && *p.Spec.Priority > 0 {
				critical++
			}
		}
		if critical != 4 {
			return fmt.Errorf("%d are", critical)
		}
		return nil
	})
	b.phase(t, "Complete")
	b.kubectl(t, "apply", "-f", "variants.yaml")
	await(t, "none is", func(context.Context) error {
		for _, p := range b.list(t) {
			if p.DeletionTimestamp == nil && p.Spec.PriorityClassName != "" {
				return fmt.Errorf("pod %s is", p.Name)
			}
		}
		return nil
	})
	b.phase(t, "Complete")
}

// badVariant has an image that cannot be pulled, on the nodes of one zone.
func (b *beside) badVariant(t *testing.T) {
	before := b.pods(t)
	b.kubectl(t, "apply", "-f", b.write("bad.yaml", perZone(`image: "example.com/agent:fail"`)))
	since := time.Now()
	b.phase(t, "RolledBack")
	b.varied(t, "agent", map[string]int{"by-size 336Mi": 8, "zone-a THREADS=9": 4})
	t.Logf("all nodes had the old variant back after %v", time.Since(since).Round(time.Second))
	b.unchanged(t, before, 1)
	b.kubectl(t, "apply", "-f", "variants.yaml")
	b.phase(t, "Complete")
	b.unchanged(t, before, 1)
}

// withoutVariant kills all replicas. A pod that is made then is of the template alone until somebody is back.
func (b *beside) withoutVariant(t *testing.T) {
	before := b.pods(t)
	b.kill(t, b.replicas...)
	b.lose(t, "1")
	await(t, "the pod is made", func(ctx context.Context) error {
		if n := len(b.pods(t)); n != nodes {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	b.begins(t)
	b.varied(t, "agent", map[string]int{"by-size 336Mi": 8, "zone-a THREADS=9": 4})
	b.phase(t, "Complete")
	b.unchanged(t, before, 1)
}

func (b *beside) templateUnderVariants(t *testing.T) {
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "Complete")
	b.images(t, "example.com/agent:2")
	b.varied(t, "agent", map[string]int{"by-size 336Mi": 8, "zone-a THREADS=9": 4})
	b.kubectl(t, "set", "image", "ds/agent", "agent=example.com/agent:fail")
	b.phase(t, "RolledBack")
	b.images(t, "example.com/agent:2")
	b.varied(t, "agent", map[string]int{"by-size 336Mi": 8, "zone-a THREADS=9": 4})
	b.kubectl(t, "apply", "-f", "agent-2.yaml")
	b.phase(t, "Complete")
}

// newVaried applies another DaemonSet. No pod of it may be of the template alone.
func (b *beside) newVaried(t *testing.T) {
	b.second(t, agent)
	b.varied(t, "second", map[string]int{"by-size 336Mi": 8, "zone-a THREADS=9": 4})
	b.madeOnce(t, "second")
	b.kubectl(t, "delete", "ds/second")
}

// leavesVaried gives everything back. No pod restarts, and each is that of its variant until it is next made.
func (b *beside) leavesVaried(t *testing.T) {
	before := b.pods(t)
	b.leave(t).ends(t, 0).says(t, "the pods of 12 nodes are those of their variants until they are next made")
	b.kill(t, b.replicas...)
	b.stored(t, false)
	b.samePods(t, before)
	b.lose(t, "2")
	await(t, "one pod is of the template", func(ctx context.Context) error {
		n := 0
		for _, p := range b.list(t) {
			if p.DeletionTimestamp == nil && variant.MarkOf(&p.ObjectMeta).Variant == "" {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}
