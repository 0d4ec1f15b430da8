package rbac

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		rule       rbacv1.PolicyRule
		namespaced bool
		want       string
	}{
		"resources":            {rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}, true, "[]"},
		"paths":                {rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}, false, "[]"},
		"paths in a namespace": {rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}, true, `[rules[0].nonResourceURLs: Invalid value: ["/metrics"]: namespaced rules cannot apply to non-resource URLs]`},
		"both": {rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}, Resources: []string{"pods"}}, false,
			`[rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and non-resource URLs]`},
	} {
		if got := fmt.Sprint(ValidateRules([]rbacv1.PolicyRule{c.rule}, c.namespaced)); got != c.want && got != "[]" || got == "[]" && c.want != "[]" {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestBinding(t *testing.T) {
	ref := rbacv1.RoleRef{Kind: "Role", Name: "r"}
	subjects := []rbacv1.Subject{{Kind: "User", Name: "u"}, {Kind: "ServiceAccount", Name: "a", Namespace: "n"}, {Kind: "Group", Name: "g"}}
	setDefaults(&ref, subjects)
	if errs := validateBinding(&ref, subjects, true); len(errs) > 0 {
		t.Errorf("a valid binding: %v", errs)
	}
	if errs := validateBinding(&ref, subjects, false); len(errs) != 1 || errs[0].Error() != `roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"` {
		t.Errorf("a role for the whole cluster: %v", errs)
	}
	if errs := sameRole(rbacv1.RoleRef{Kind: "Role", Name: "other"}, ref); len(errs) != 1 ||
		errs[0].Error() != `roleRef: Invalid value: {"APIGroup":"","Kind":"Role","Name":"other"}: cannot change roleRef` {
		t.Errorf("another role: %v", errs)
	}
	if got, want := fmt.Sprint(bindingRow("b", ref, subjects, "5m")), "[b Role/r 5m u g n/a]"; got != want {
		t.Errorf("row is %s, want %s", got, want)
	}
}
