package kinds

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A ReplicationController adopts and releases pods, is scaled, tells of its failures, keeps its pods when it goes, and takes them along
// when it is told to.
func replicationControllers(t *testing.T, c cluster) {
	ctx, core := t.Context(), c.Client.CoreV1()
	api, pods := core.ReplicationControllers(c.namespace), core.Pods(c.namespace)
	must(pods.Create(ctx, onePod("web"), metav1.CreateOptions{}))(t) // nobody's yet
	rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(2)),
		Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: onePod("web").Spec}}}
	rc = must(api.Create(ctx, rc, metav1.CreateOptions{}))(t)
	ready := func(n int32) func(context.Context) error {
		return func(ctx context.Context) error {
			got := must(api.Get(ctx, "web", metav1.GetOptions{}))(t)
			if s := got.Status; s.ReadyReplicas != n || s.Replicas != n || s.AvailableReplicas != n || s.FullyLabeledReplicas != n || s.ObservedGeneration != got.Generation {
				return fmt.Errorf("%+v", s)
			}
			return nil
		}
	}
	c.Eventually("two pods are ready", ready(2))
	adopted := must(pods.Get(ctx, "web", metav1.GetOptions{}))(t)
	if ref := metav1.GetControllerOf(adopted); ref == nil || ref.UID != rc.UID || ref.Kind != "ReplicationController" {
		t.Errorf("the pod's owner is %v", ref)
	}
	must(pods.Patch(ctx, "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{}))(t)
	c.Eventually("the pod is released", func(ctx context.Context) error {
		if p := must(pods.Get(ctx, "web", metav1.GetOptions{}))(t); metav1.GetControllerOf(p) != nil {
			return fmt.Errorf("it belongs to %v", metav1.GetControllerOf(p))
		}
		return nil
	})
	scale := must(api.GetScale(ctx, "web", metav1.GetOptions{}))(t)
	if scale.Spec.Replicas != 2 || scale.Status.Selector != "app=web" {
		t.Errorf("the scale is %+v", scale)
	}
	scale.Spec.Replicas, scale.ResourceVersion = 3, "" // the status is being written meanwhile
	must(api.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{}))(t)
	c.Eventually("three pods are ready", ready(3))

	// A budget knows how many pods there should be.
	must(c.Client.PolicyV1().PodDisruptionBudgets(c.namespace).Create(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: named("web"), Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}, metav1.CreateOptions{}))(t)
	c.Eventually("the budget is reckoned", func(ctx context.Context) error {
		b := must(c.Client.PolicyV1().PodDisruptionBudgets(c.namespace).Get(ctx, "web", metav1.GetOptions{}))(t)
		if b.Status.ExpectedPods != 3 || b.Status.DisruptionsAllowed != 1 {
			return fmt.Errorf("%+v", b.Status)
		}
		return nil
	})
	if list := must(api.List(ctx, metav1.ListOptions{FieldSelector: "status.replicas=3"}))(t); len(list.Items) != 1 {
		t.Errorf("%d have three replicas", len(list.Items))
	}

	// What cannot be made shows in a condition, until it can.
	must(core.ResourceQuotas(c.namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: named("q"), Spec: corev1.ResourceQuotaSpec{Hard: amounts("pods", "4")}}, metav1.CreateOptions{}))(t)
	known(c, "exceeded quota: q")
	must(api.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":4}}`), metav1.PatchOptions{}))(t)
	c.Eventually("a condition tells of the quota", func(ctx context.Context) error {
		got := must(api.Get(ctx, "web", metav1.GetOptions{}))(t)
		for _, condition := range got.Status.Conditions {
			if condition.Type == corev1.ReplicationControllerReplicaFailure && condition.Reason == "FailedCreate" {
				return refusal(func() error { return fmt.Errorf("%s", condition.Message) }, "exceeded quota: q")(ctx)
			}
		}
		return fmt.Errorf("%+v", got.Status)
	})
	must(api.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}))(t)
	c.Eventually("two pods are left", ready(2))
	if got := must(api.Get(ctx, "web", metav1.GetOptions{}))(t); len(got.Status.Conditions) != 0 {
		t.Errorf("the conditions are %v", got.Status.Conditions)
	}

	// It leaves its pods behind, another takes them, and takes them along.
	own := metav1.ListOptions{LabelSelector: "app=web"}
	if err := api.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the pods are left behind", func(ctx context.Context) error {
		list := must(pods.List(ctx, own))(t)
		for i := range list.Items {
			if metav1.GetControllerOf(&list.Items[i]) != nil || list.Items[i].DeletionTimestamp != nil {
				return fmt.Errorf("%v", list.Items[i].ObjectMeta)
			}
		}
		if len(list.Items) != 2 {
			return fmt.Errorf("%d pods", len(list.Items))
		}
		_, err := api.Get(ctx, "web", metav1.GetOptions{})
		return refusal(func() error { return err }, "not found")(ctx)
	})
	again := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: rc.Spec}
	must(api.Create(ctx, again, metav1.CreateOptions{}))(t)
	c.Eventually("they are adopted", ready(2))
	if err := api.Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("they go with it", func(ctx context.Context) error {
		if list := must(pods.List(ctx, own))(t); len(list.Items) != 0 {
			return fmt.Errorf("%d pods", len(list.Items))
		}
		return nil
	})
}
