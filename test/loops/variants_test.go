package loops

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/objects/pod"
)

// applyExample applies a file of examples with several objects in it.
func applyExample(t *testing.T, j *joining, name string) {
	t.Helper()
	text, err := os.ReadFile("../../examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(j.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		of := schema.GroupVersionResource{Group: o.GroupVersionKind().Group, Version: o.GroupVersionKind().Version,
			Resource: strings.ToLower(o.GetKind()) + "s"}
		_, err := objects.Resource(of).Namespace(o.GetNamespace()).Apply(t.Context(), o.GetName(), o,
			metav1.ApplyOptions{FieldManager: "test", Force: true})
		if err != nil {
			t.Fatalf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// sized adds a node with so many cores and Gi.
func (j *joining) sized(name, size string, cores, gi int64) {
	j.t.Helper()
	n := j.join(name)
	room := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cores, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(gi<<30, resource.BinarySI), corev1.ResourcePods: resource.MustParse("100")}
	j.Eventually("the node has its size", func(ctx context.Context) error {
		have, err := j.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have.Status.Capacity, have.Status.Allocatable = room, room
		if have, err = j.Client.CoreV1().Nodes().UpdateStatus(ctx, have, metav1.UpdateOptions{}); err != nil {
			return err
		}
		have.Labels["size"] = size
		_, err = j.Client.CoreV1().Nodes().Update(ctx, have, metav1.UpdateOptions{})
		return err
	})
}

// The example of the guide, on nodes from 2 to 192 cores: each has what fits it, which the scheduler counts as taken. An
// edit of a formula changes the nodes that it makes a difference for, and what cannot be meant is refused.
func TestOneDaemonSetForEverySize(t *testing.T) {
	j := startJoining(t)
	for i, n := range []struct {
		size      string
		cores, gi int64
	}{{"s", 2, 4}, {"m", 16, 64}, {"xl", 192, 768}} {
		j.sized(fmt.Sprint("node-", i), n.size, n.cores, n.gi)
	}
	applyExample(t, j, "variants.yaml")
	daemons := func(want ...string) (uids map[string]string) {
		t.Helper()
		j.Eventually("each node has its daemon", func(ctx context.Context) error {
			pods, err := j.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=log-agent"})
			if err != nil {
				return err
			}
			var got []string
			uids = map[string]string{}
			for _, p := range pods.Items {
				if !pod.IsReady(&p) {
					return fmt.Errorf("the pod of %s is not ready", p.Spec.NodeName)
				}
				c := p.Spec.Containers[0]
				is := fmt.Sprint(p.Spec.NodeName, " ", c.Resources.Requests.Cpu(), " ", c.Resources.Requests.Memory())
				for _, e := range c.Env {
					is += " " + e.Name + "=" + e.Value
				}
				got, uids[p.Spec.NodeName] = append(got, is), string(p.UID)
				if mark := variant.MarkOf(&p.ObjectMeta); mark.Variant == "" && p.Spec.NodeName != "node-0" {
					return fmt.Errorf("the pod of %s does not say by what it was made: %v", p.Spec.NodeName, p.Annotations)
				}
			}
			if len(got) != len(want) {
				return fmt.Errorf("daemons are %q", got)
			}
			for _, w := range want {
				if !strings.Contains(strings.Join(got, "\n")+"\n", w+"\n") {
					return fmt.Errorf("daemons are %q, want %q", got, w)
				}
			}
			return nil
		})
		return uids
	}
	before := daemons("node-0 100m 128Mi", "node-1 160m 656Mi", "node-2 100m 4Gi THREADS=8")
	if _, err := j.own.DaemonSetVariants("default").Patch(t.Context(), "large", "application/merge-patch+json",
		[]byte(`{"spec":{"resources":{"agent":{"requests":{"memory":"quantity('2Gi')"}}}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	after := daemons("node-0 100m 128Mi", "node-1 160m 656Mi", "node-2 100m 2Gi THREADS=8")
	if before["node-0"] != after["node-0"] || before["node-1"] != after["node-1"] || before["node-2"] != after["node-2"] {
		t.Errorf("pods were %v, and are %v: other amounts make no other pods", before, after)
	}
	j.Eventually("the status counts nodes", func(ctx context.Context) error {
		for name, nodes := range map[string]int32{"by-size": 2, "large": 1} {
			v, err := j.own.DaemonSetVariants("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if v.Status.Nodes != nodes || v.Status.DaemonSets != 1 || v.Status.ObservedGeneration != v.Generation {
				return fmt.Errorf("the status of %s is %+v", name, v.Status)
			}
		}
		return nil
	})
	for field, body := range map[string]string{
		"spec.resources[agent].requests[memory]": `{"spec":{"resources":{"agent":{"requests":{"memory":"'a lot'"}}}}}`,
		"spec.patch":                             `{"spec":{"patch":{"spec":{"nodeSelector":{"a":"b"}}}}}`,
		"with the template of DaemonSet log-agent: template.spec.containers[0].image: Required value": `{"spec":{"patch":{"spec":{"containers":[{"name":"other"}]}}}}`,
	} {
		_, err := j.own.DaemonSetVariants("default").Patch(t.Context(), "large", "application/merge-patch+json", []byte(body),
			metav1.PatchOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
