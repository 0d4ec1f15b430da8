package clusterroleaggregation

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func role(name string, labels map[string]string, resources ...string) rbacv1.ClusterRole {
	r := rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	for _, resource := range resources {
		r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}})
	}
	return r
}

func collector(name string, labels map[string]string, selectors ...metav1.LabelSelector) rbacv1.ClusterRole {
	r := role(name, labels)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: selectors}
	return r
}

func choose(key string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{key: "true"}}
}

func resources(rules []rbacv1.PolicyRule) []string {
	var all []string
	for _, rule := range rules {
		all = append(all, rule.Resources...)
	}
	return all
}

func TestPlan(t *testing.T) {
	view, both := map[string]string{"view": "true"}, map[string]string{"view": "true", "edit": "true"}
	others := []rbacv1.ClusterRole{
		role("z", view, "pods", "nodes"), role("a", view, "services"), role("b", both, "pods"), role("c", nil, "secrets"),
	}
	cases := []struct {
		name      string
		collector rbacv1.ClusterRole
		want      []string
	}{
		{"sorted by name, each rule once", collector("v", nil, choose("view")), []string{"services", "pods", "nodes"}},
		{"selectors in their order", collector("v", nil, choose("edit"), choose("view")), []string{"pods", "services", "nodes"}},
		{"nothing chosen", collector("v", nil, choose("admin")), nil},
		{"no selectors", collector("v", nil), nil},
		{"never itself", collector("v", view, choose("view")), []string{"services", "pods", "nodes"}},
	}
	for _, c := range cases {
		got, err := plan(&c.collector, append([]rbacv1.ClusterRole{c.collector}, others...))
		if err != nil || !slices.Equal(resources(got), c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, resources(got), err, c.want)
		}
	}
	broken := collector("v", nil, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}})
	if _, err := plan(&broken, others); err == nil {
		t.Error("a malformed selector was accepted")
	}
}

func TestReconcileWritesOnlyChanges(t *testing.T) {
	v, part := collector("view", nil, choose("view")), role("part", map[string]string{"view": "true"}, "pods")
	build := func(objects ...client.Object) client.Client {
		return crfake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()
	}
	api := fake.NewClientset(v.DeepCopy(), part.DeepCopy())
	r := &reconciler{reader: build(v.DeepCopy(), part.DeepCopy()), client: api}
	requests := r.collectors(t.Context(), &part)
	if len(requests) != 1 || requests[0].Name != "view" {
		t.Fatalf("a change of part reaches %v, want view", requests)
	}
	if _, err := r.Reconcile(t.Context(), requests[0]); err != nil {
		t.Fatal(err)
	}
	written, err := api.RbacV1().ClusterRoles().Get(t.Context(), "view", metav1.GetOptions{})
	if err != nil || !slices.Equal(resources(written.Rules), []string{"pods"}) {
		t.Fatalf("view holds %v, %v", resources(written.Rules), err)
	}
	written.ResourceVersion = ""
	r.reader = build(written, part.DeepCopy())
	api.ClearActions()
	for _, name := range []string{"view", "part", "gone"} {
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	if actions := api.Actions(); len(actions) != 0 {
		t.Errorf("nothing had changed, but the controller did %v", actions)
	}
}
