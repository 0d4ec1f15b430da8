package foreign

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/testenv/eventually"
)

var many = flag.Int("many", 0, "how many simulated nodes TestContentOfManyBesideKubernetes has, such as 5000; it is skipped with 0")

// manyNodes is withContent for a fleet: three canaries, and then a tenth of all at one time.
const manyNodes = `apiVersion: everynode.io/v1alpha1
kind: RolloutPolicy
metadata: {name: agents, namespace: default}
spec:
  selector: {matchLabels: {tier: agent}}
  waves:
  - {name: canary, count: 3, soak: 5s}
  - {name: others, nodes: {}, maxUnavailable: 10%}
  failure: {max: 1, min: 2, startDeadline: 1m, restarts: 2, then: Rollback}
  content: {configMaps: Referenced, secrets: Referenced, settle: 1s}
`

// TestContentOfManyBesideKubernetes has a bad key reach the canaries of a large fleet alone, and all nodes be well again
// within a minute, where kube-controller-manager makes the pods.
func TestContentOfManyBesideKubernetes(t *testing.T) {
	if *many == 0 {
		t.Skip("-many says how many nodes there are")
	}
	c := folder(t)
	c.hurry = []string{"--kube-api-qps=1000", "--kube-api-burst=2000"}
	// A machine that has all of them on two cores is late with their heartbeats.
	c.patient = []string{"--node-monitor-grace-period=15m"}
	c.startPlane()
	b := &beside{cluster: c, front: newFront(t)}
	b.simulate(*many, faults)
	eventually.Nil(t, b.long(), "all nodes are there", func(ctx context.Context) error {
		list, err := b.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != *many {
			err = fmt.Errorf("%d nodes", len(list.Items))
		}
		return err
	})
	b.grants(t)
	b.kubectl(t, "apply", "-f", b.write("settings.yaml", settings("info")))
	b.kubectl(t, "create", "secret", "generic", "token", "--from-literal=token="+tokenValue)
	b.begins(t)
	b.kubectl(t, "apply", "-f", b.write("first.yaml", strings.Replace(manyNodes, "10%", "50%", 1)))
	since := time.Now()
	b.kubectl(t, "apply", "-f", b.write("agent.yaml", reader))
	b.allRead(t, "info")
	t.Logf("a new DaemonSet was on %d nodes after %v", *many, time.Since(since).Round(100*time.Millisecond))

	b.kubectl(t, "apply", "-f", b.write("policy.yaml", manyNodes))
	b.phase(t, "Complete")
	before := b.pods(t)
	since = time.Now()
	b.kubectl(t, "apply", "-f", b.write("bad.yaml", settings("verbos")))
	b.phase(t, "RolledBack")
	b.allRead(t, "info")
	took := time.Since(since)
	touched := 0
	for node, uid := range b.pods(t) {
		if before[node] != uid {
			touched++
		}
	}
	t.Logf("a bad key touched %d nodes of %d, and all were well again %v after the edit", touched, *many,
		took.Round(100*time.Millisecond))
	if touched < 2 || touched > 3 || took > time.Minute {
		t.Errorf("it touched %d nodes for %v, want the three canaries at most, and a minute", touched, took)
	}

	since = time.Now()
	b.kubectl(t, "apply", "-f", b.write("good.yaml", settings("debug")))
	b.allRead(t, "debug")
	t.Logf("a good key was on %d nodes after %v", *many, time.Since(since).Round(100*time.Millisecond))
}

// long is how long what concerns all nodes may take.
func (b *beside) long() time.Duration { return patience + time.Duration(*many)*200*time.Millisecond }

// grants has the kinds, and the rights that the guides name.
func (b *beside) grants(t *testing.T) {
	t.Helper()
	b.kinds(t)
	for _, role := range []string{"content", "content-secrets"} {
		b.kubectl(t, "-n", "default", "create", "rolebinding", role, "--clusterrole=everynode:"+role,
			"--serviceaccount=kube-system:everynode-beside")
	}
}

// allRead waits until each node has one pod that is ready and reads a copy with that level, and the rollout is over.
func (b *beside) allRead(t *testing.T, level string) {
	t.Helper()
	eventually.Nil(t, b.long(), "all nodes read "+level, func(ctx context.Context) error {
		levels, ready := map[string]string{}, map[string]bool{}
		for _, p := range b.list(t) {
			if p.DeletionTimestamp != nil || len(p.Status.ContainerStatuses) == 0 || !p.Status.ContainerStatuses[0].Ready {
				continue
			}
			revision := p.Labels[content.RevisionLabel]
			if _, known := levels[revision]; !known {
				is, err := b.level(ctx, &p)
				if err != nil {
					return err
				}
				levels[revision] = is
			}
			if levels[revision] != level {
				return fmt.Errorf("pod %s reads %s", p.Name, levels[revision])
			}
			ready[p.Spec.NodeName] = true
		}
		if len(ready) != *many {
			return fmt.Errorf("%d of %d nodes do", len(ready), *many)
		}
		a := b.run(t, "rollout", "status", "daemonset/agent", "-o", "json")
		if !strings.Contains(a.out, "Complete") && !strings.Contains(a.out, "RolledBack") {
			return fmt.Errorf("the rollout says %s%s", a.out, a.errOut)
		}
		return nil
	})
}
