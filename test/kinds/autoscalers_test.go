package kinds

import (
	"slices"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applyv2 "k8s.io/client-go/applyconfigurations/autoscaling/v2"
)

// autoscalers are the same objects in both versions: a change in the old one keeps what that has no fields for.
func autoscalers(t *testing.T, c cluster) {
	ctx := t.Context()
	old, api := c.Client.AutoscalingV1().HorizontalPodAutoscalers(c.namespace),
		c.Client.AutoscalingV2().HorizontalPodAutoscalers(c.namespace)
	created := must(old.Create(ctx, &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: named("web"),
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MaxReplicas:    3,
		}}, metav1.CreateOptions{}))(t)
	if s := created.Spec; *s.MinReplicas != 1 || *s.TargetCPUUtilizationPercentage != 80 {
		t.Errorf("created in autoscaling/v1: %+v", s)
	}
	apply := applyv2.HorizontalPodAutoscaler("web", c.namespace).WithSpec(applyv2.HorizontalPodAutoscalerSpec().
		WithBehavior(applyv2.HorizontalPodAutoscalerBehavior().WithScaleDown(applyv2.HPAScalingRules().WithStabilizationWindowSeconds(7))))
	applied := must(api.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: "me", Force: true}))(t)
	if b := applied.Spec.Behavior; b == nil || *b.ScaleDown.StabilizationWindowSeconds != 7 ||
		len(b.ScaleUp.Policies) != 2 || applied.Spec.MaxReplicas != 3 {
		t.Errorf("applied in autoscaling/v2: %+v", applied.Spec)
	}
	patch := []byte(`{"spec":{"maxReplicas":9},"status":{"desiredReplicas":4}}`)
	if p := must(old.Patch(ctx, "web", types.MergePatchType, patch,
		metav1.PatchOptions{}))(t); p.Spec.MaxReplicas != 9 || p.Status.DesiredReplicas != 0 {
		t.Errorf("patched in autoscaling/v1: %+v", p)
	}
	got := must(api.Get(ctx, "web", metav1.GetOptions{}))(t)
	if b := got.Spec.Behavior; b == nil || *b.ScaleDown.StabilizationWindowSeconds != 7 || got.Spec.MaxReplicas != 9 ||
		len(got.Annotations) > 0 {
		t.Errorf("after a patch in autoscaling/v1: %+v", got)
	}
	if !slices.ContainsFunc(got.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == "me" &&
			f.APIVersion == "autoscaling/v2"
	}) {
		t.Errorf("who applied is forgotten: %+v", got.ManagedFields)
	}
	got.Status.DesiredReplicas, got.Spec.MaxReplicas = 5, 1
	got.ResourceVersion = "" // its controller writes the status as well
	if s := must(api.UpdateStatus(ctx, got, metav1.UpdateOptions{}))(t); s.Status.DesiredReplicas != 5 ||
		s.Spec.MaxReplicas != 9 || s.Generation != 3 {
		t.Errorf("after a change of the status: %+v", s)
	}
	if list := must(old.List(ctx, metav1.ListOptions{}))(t); len(list.Items) != 1 ||
		list.Items[0].Spec.MaxReplicas != 9 {
		t.Errorf("listed in autoscaling/v1: %+v", list.Items)
	}
	_, err := api.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"minReplicas":0}}`), metav1.PatchOptions{})
	refused(t, err, metav1.StatusReasonInvalid, "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1")

	discovered := must(c.Client.Discovery().ServerGroups())(t)
	for _, g := range discovered.Groups {
		if g.Name == "autoscaling" && (g.PreferredVersion.Version != "v2" || len(g.Versions) != 2) {
			t.Errorf("the group is %+v", g)
		}
	}
	for _, version := range []string{"autoscaling/v1", "autoscaling/v2"} {
		resources := must(c.Client.Discovery().ServerResourcesForGroupVersion(version))(t).APIResources
		if len(resources) != 2 || !slices.Equal(resources[0].ShortNames, []string{"hpa"}) ||
			!slices.Equal(resources[0].Categories, []string{"all"}) {
			t.Errorf("%s has %+v", version, resources)
		}
	}
	for role, verb := range map[string]string{"view": "list", "edit": "create", "admin": "delete"} {
		rules := must(c.Client.RbacV1().ClusterRoles().Get(ctx, role, metav1.GetOptions{}))(t).Rules
		if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, "horizontalpodautoscalers") && slices.Contains(r.Verbs, verb)
		}) {
			t.Errorf("%s may not %s autoscalers", role, verb)
		}
	}
	raw := string(must(c.Client.AutoscalingV2().RESTClient().Get().Namespace(c.namespace).Resource("horizontalpodautoscalers").Name("web").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx))(t))
	if !strings.Contains(raw, `"cells":["web","Deployment/web","cpu: \u003cunknown\u003e/80%","1",9,0,`) {
		t.Errorf("the row is %s", raw)
	}
	var left *autoscalingv2.HorizontalPodAutoscalerList
	if err := old.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if left = must(api.List(ctx, metav1.ListOptions{}))(t); len(left.Items) > 0 {
		t.Errorf("left: %v", left.Items)
	}
}
