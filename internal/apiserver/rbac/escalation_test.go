package rbac

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
)

func aggregating(name string, selectors ...metav1.LabelSelector) *rbacv1.ClusterRole {
	r := clusterRole(name)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: selectors}
	return r
}

func TestEscalation(t *testing.T) {
	resolver, client := resolverOf(t,
		clusterRole("podder", rule("get,list", "", "pods"), rule("create,update,patch", "rbac.authorization.k8s.io", "roles,rolebindings")),
		clusterRole("all", rule("*", "*", "*"), path("*", "*")),
		clusterRole("binder", rule("bind", "rbac.authorization.k8s.io", "clusterroles", "all")),
		clusterRole("escalator", rule("escalate", "rbac.authorization.k8s.io", "roles,clusterroles")),
		role("ns", "secrets", rule("get", "", "secrets")),
		role("ns", "pods", rule("get", "", "pods")),
		clusterBinding("all", "user:root"),
		clusterBinding("binder", "user:binder"),
		clusterBinding("escalator", "user:escalator"),
		binding("ns", "ClusterRole", "podder", "user:jane"),
	)
	e := NewEscalation(resolver, NewAuthorizer(resolver), client.RbacV1())
	owned := role("ns", "secrets", rule("get", "", "secrets"))
	owned.OwnerReferences = []metav1.OwnerReference{{Name: "x"}}
	fresh := role("ns", "fresh", rule("get", "", "secrets"))
	if _, err := client.RbacV1().Roles("ns").Create(t.Context(), fresh, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	selector := metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	jane, root := person("jane"), person("root")
	cases := []struct {
		name     string
		who      user.Info
		obj, old runtime.Object
		says     string // empty: allowed
	}{
		{"what she holds", jane, role("ns", "r", rule("get", "", "pods")), nil, ""},
		{"one verb more", jane, role("ns", "r", rule("get,delete", "", "pods")), nil, `{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}`},
		{"a wildcard", jane, role("ns", "r", rule("*", "", "pods")), nil, "attempting to grant RBAC permissions not currently held"},
		{"elsewhere", jane, role("other", "r", rule("get", "", "pods")), nil, `user "jane" (groups=[]) is attempting`},
		{"a subset by name", jane, role("ns", "r", rule("get", "", "pods", "p1")), nil, ""},
		{"cluster role from a namespace's right", jane, clusterRole("r", rule("get", "", "pods")), nil, "not currently held"},
		{"a path", jane, clusterRole("r", path("get", "/metrics")), nil, `NonResourceURLs:["/metrics"]`},
		{"masters may all", person("x", "system:masters"), clusterRole("r", rule("*", "*", "*")), nil, ""},
		{"who holds all may all", root, clusterRole("r", rule("*", "*", "*")), nil, ""},
		{"escalate", person("escalator"), clusterRole("r", rule("*", "*", "*")), nil, ""},
		{"escalate is for roles only", person("escalator"), clusterBinding("all", "user:escalator"), nil, "not currently held"},
		{"an aggregation", jane, aggregating("r", selector), nil, "must have cluster-admin privileges to use the aggregationRule"},
		{"an aggregation by root", root, aggregating("r", selector), nil, ""},
		{"an old aggregation", jane, aggregating("r", selector), func() runtime.Object {
			old := aggregating("r", selector)
			old.Labels = map[string]string{"x": "y"}
			return old
		}(), ""},
		{"collector removes an owner", jane, role("ns", "secrets", rule("get", "", "secrets")), owned, ""},
		{"binds what she holds", jane, binding("ns", "Role", "pods", "user:x"), nil, ""},
		{"binds what she lacks", jane, binding("ns", "Role", "secrets", "user:x"), nil, `Resources:["secrets"]`},
		{"binds a role younger than the cache", jane, binding("ns", "Role", "fresh", "user:x"), nil, `Resources:["secrets"]`},
		{"binds what is not there", jane, binding("ns", "Role", "nothing", "user:x"), nil, "not found"},
		{"binds everything", jane, binding("ns", "ClusterRole", "all", "user:jane"), nil, "not currently held"},
		{"binds for the cluster", jane, clusterBinding("all", "user:jane"), nil, "not currently held"},
		{"bind by name", person("binder"), clusterBinding("all", "user:x"), nil, ""},
		{"bind of another", person("binder"), clusterBinding("escalator", "user:x"), nil, "not currently held"},
		{"other kinds", jane, &rbacv1.RoleList{}, nil, ""},
	}
	for _, c := range cases {
		err := e.Check(t.Context(), c.who, c.obj, c.old)
		if c.says == "" && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !(apierrors.IsForbidden(err) || apierrors.IsNotFound(err))) {
			t.Errorf("%s: %v, want one that says %s", c.name, err, c.says)
		}
	}
}
