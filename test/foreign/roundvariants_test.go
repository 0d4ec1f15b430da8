package foreign

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/testenv/eventually"
)

// flavored are two variants of a DaemonSet: all its pods request some memory, and those on nodes with some labels are
// patched in place of that.
func flavored(set, labels, patch string, memory int) string {
	return fmt.Sprintf(`apiVersion: everynode.io/v1alpha1
kind: DaemonSetVariant
metadata: {name: %[1]s-all, namespace: default}
spec:
  daemonSets: {matchLabels: {tier: %[1]s}}
  resources: {agent: {requests: {memory: "quantity('%[4]dMi')"}}}
---
apiVersion: everynode.io/v1alpha1
kind: DaemonSetVariant
metadata: {name: %[1]s-some, namespace: default}
spec:
  daemonSets: {matchLabels: {tier: %[1]s}}
  nodes: {matchLabels: {%[2]s}}
  priority: 1
  patch: {spec: %[3]s}
`, set, labels, patch, memory)
}

// flavor has pods say which one they are of.
func flavor(name string) string {
	return `{containers: [{name: agent, env: [{name: FLAVOR, value: "` + name + `"}]}]}`
}

// newVariants has the DaemonSet that has variants have others: some change the nodes of a rack, some all, some have no
// room anywhere, and some make pods that the API refuses.
func (r *round) newVariants() string {
	labels := []string{"rack: r1", "rack: r2", "topology.kubernetes.io/zone: b"}[r.rand.IntN(3)]
	patch := []string{flavor("sweet"), flavor("sour"), flavor("sweet"), "{priorityClassName: no-such-class}",
		`{containers: [{name: agent, resources: {requests: {cpu: "900"}}}]}`}[r.rand.IntN(5)]
	memory := 16 * (4 + r.rand.IntN(3))
	if r.rand.IntN(6) == 0 {
		return r.tries("kubectl", "delete", "--ignore-not-found", "dsv/mixed-some")
	}
	return fmt.Sprintf("%s %s %d: ", labels, patch, memory) +
		r.tries("kubectl", "apply", "-f", r.write("variants.yaml", flavored("mixed", labels, patch, memory)))
}

// lastVariants has variants that can be had.
func (r *round) lastVariants() {
	r.kubectl(r.t, "apply", "-f", r.write("variants.yaml", flavored("mixed", "rack: r3", flavor("last"), 160)))
}

// vary waits until each pod of the DaemonSet that has variants is that of its node.
func (r *round) vary() {
	began := time.Now()
	eventually.Nil(r.t, r.patience(2*time.Minute), "all pods are those of their variants", func(ctx context.Context) error {
		nodes, err := r.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		racks := map[string]string{}
		for i := range nodes.Items {
			racks[nodes.Items[i].Name] = nodes.Items[i].Labels["rack"]
		}
		pods, err := r.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=mixed"})
		if err != nil {
			return err
		}
		var bad []string
		for i := range pods.Items {
			if why := unlike(&pods.Items[i], racks); why != "" {
				bad = append(bad, why)
			}
		}
		if len(bad) > 0 {
			return errors.New(strings.Join(bad[:min(5, len(bad))], "; "))
		}
		return nil
	})
	if took := time.Since(began); took > 2*time.Second {
		r.t.Logf("pods were those of their variants within %v", took.Round(time.Second))
	}
}

// unlike says what a pod is not that it is to be by the last variants; "" if it is.
func unlike(p *corev1.Pod, racks map[string]string) string {
	rack, there := racks[p.Spec.NodeName]
	if p.DeletionTimestamp != nil || !there {
		return ""
	}
	want, has := "mixed-all", ""
	if rack == "r3" {
		want = "mixed-some"
	}
	c := &p.Spec.Containers[0]
	for _, e := range c.Env {
		if e.Name == "FLAVOR" {
			has = e.Value
		}
	}
	is, memory := variant.MarkOf(&p.ObjectMeta).Variant, c.Resources.Requests.Memory()
	switch {
	case is != want:
		return fmt.Sprintf("pod %s on rack %s is of variant %q", p.Name, rack, is)
	case want == "mixed-some" && (has != "last" || !memory.IsZero()):
		return fmt.Sprintf("pod %s on rack %s has flavor %q and requests %v", p.Name, rack, has, memory)
	case want == "mixed-all" && (has != "" || memory.Value() != 160<<20):
		return fmt.Sprintf("pod %s on rack %s has flavor %q and requests %v", p.Name, rack, has, memory)
	}
	return ""
}
