package main

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// nodesReady waits until every node can take ordinary pods.
func (b *bench) nodesReady(ctx context.Context) error {
	nodes := b.client.CoreV1().Nodes()
	ready := map[string]bool{}
	return b.follow(ctx, "the nodes", source{
		list: func(ctx context.Context, o metav1.ListOptions) (listed, error) {
			return nodes.List(ctx, o)
		}, watch: nodes.Watch,
	}, func(object metav1.Object, gone bool) (done bool) {
		if node, ok := object.(*corev1.Node); ok && !gone && len(node.Spec.Taints) == 0 {
			ready[node.Name] = true
		} else {
			delete(ready, object.GetName())
		}
		return len(ready) == b.nodes
	})
}

func (b *bench) create(ctx context.Context) error {
	for i := range b.sets {
		if err := b.apply(ctx, setName(i)); err != nil {
			return err
		}
	}
	for i := range b.sets {
		if err := b.available(ctx, setName(i)); err != nil {
			return err
		}
	}
	return nil
}

// updated is the DaemonSet that is updated.
var updated = setName(0)

func setName(i int) string {
	if i == 0 {
		return "bench"
	}
	return "bench-" + strconv.Itoa(i+1)
}

// apply creates a DaemonSet and does not wait for its pods.
func (b *bench) apply(ctx context.Context, name string) error {
	_, err := b.client.AppsV1().DaemonSets("default").Create(ctx, b.daemonSet(name), metav1.CreateOptions{})
	return err
}

func (b *bench) daemonSet(name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	unavailable := intstr.Parse(b.unavailable)
	ds := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &unavailable},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "everynode.io/demo:v1"}}},
			},
		},
	}
	if b.mounts {
		mountConf(ds)
	}
	return ds
}

func (b *bench) update(ctx context.Context) error { return b.rollOut(ctx, "everynode.io/demo:v2") }

// rollOut gives the first DaemonSet another image, and waits until all nodes run it.
func (b *bench) rollOut(ctx context.Context, image string) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image)
	if _, err := b.client.AppsV1().DaemonSets("default").Patch(
		ctx, updated, "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{},
	); err != nil {
		return err
	}
	return b.available(ctx, updated)
}

// available waits until every node runs a DaemonSet's newest template.
func (b *bench) available(ctx context.Context, name string) error {
	sets := b.client.AppsV1().DaemonSets("default")
	return b.follow(ctx, "DaemonSet "+name, source{
		field: "metadata.name=" + name,
		list: func(ctx context.Context, o metav1.ListOptions) (listed, error) {
			return sets.List(ctx, o)
		}, watch: sets.Watch,
	}, func(object metav1.Object, _ bool) (done bool) {
		ds, ok := object.(*appsv1.DaemonSet)
		if !ok {
			return false
		}
		n, s := int32(b.nodes), ds.Status
		return s.ObservedGeneration == ds.Generation && s.DesiredNumberScheduled == n && s.UpdatedNumberScheduled == n &&
			s.NumberAvailable == n
	})
}

// remove deletes the first DaemonSet and waits until its pods are gone.
func (b *bench) remove(ctx context.Context) error {
	if err := b.client.AppsV1().DaemonSets("default").Delete(ctx, updated, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return b.until(ctx, "the pods to go", func(ctx context.Context) (bool, error) {
		if b.pace != nil {
			return b.pace.pods() == 0, nil
		}
		list, err := b.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{
			Limit:         1,
			LabelSelector: "app=" + updated,
		})
		return err == nil && len(list.Items) == 0, err
	})
}
