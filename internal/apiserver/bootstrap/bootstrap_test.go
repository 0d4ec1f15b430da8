package bootstrap

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-helpers/auth/rbac/validation"
)

func TestEnsureIsIdempotent(t *testing.T) {
	client := fake.NewClientset()
	if err := Ensure(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	client.ClearActions()
	if err := Ensure(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	for _, action := range client.Actions() {
		verb, resource := action.GetVerb(), action.GetResource().Resource
		if verb == "update" || verb == "delete" || (verb == "create" && resource != "namespaces") {
			t.Errorf("the second run did %s %s", verb, resource)
		}
	}
	namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(namespaces.Items) != 4 {
		t.Errorf("namespaces: %d, %v; want 4", len(namespaces.Items), err)
	}
	class, err := client.SchedulingV1().PriorityClasses().Get(t.Context(), NodeCriticalClass, metav1.GetOptions{})
	if err != nil || class.Value != 2000001000 {
		t.Errorf("%s = %v, %v", NodeCriticalClass, class, err)
	}
}

func TestEnsureRepairsAndKeepsAdditions(t *testing.T) {
	client := fake.NewClientset()
	ctx := t.Context()
	if err := Ensure(ctx, client); err != nil {
		t.Fatal(err)
	}
	roles, bindings := client.RbacV1().ClusterRoles(), client.RbacV1().ClusterRoleBindings()

	changed, _ := roles.Get(ctx, "system:node", metav1.GetOptions{})
	extra := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"things"}}
	changed.Rules = []rbacv1.PolicyRule{extra}
	changed.Labels["mine"] = "yes"
	protected, _ := roles.Get(ctx, "system:basic-user", metav1.GetOptions{})
	protected.Rules, protected.Annotations = nil, map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}
	collected, _ := roles.Get(ctx, "edit", metav1.GetOptions{})
	collected.Rules, collected.AggregationRule = []rbacv1.PolicyRule{extra}, nil
	for _, role := range []*rbacv1.ClusterRole{changed, protected, collected} {
		if _, err := roles.Update(ctx, role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	binding, _ := bindings.Get(ctx, "system:node", metav1.GetOptions{})
	binding.Subjects = []rbacv1.Subject{user("jane")}
	if _, err := bindings.Update(ctx, binding, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	foreign, _ := bindings.Get(ctx, "system:discovery", metav1.GetOptions{})
	foreign.RoleRef.Name = "cluster-admin"
	if _, err := bindings.Update(ctx, foreign, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	if err := Ensure(ctx, client); err != nil {
		t.Fatal(err)
	}
	changed, _ = roles.Get(ctx, "system:node", metav1.GetOptions{})
	if covered, missing := validation.Covers(changed.Rules, append(NodeRules(), extra)); !covered || changed.Labels["mine"] != "yes" {
		t.Errorf("system:node lacks %v, labels %v", missing, changed.Labels)
	}
	if protected, _ = roles.Get(ctx, "system:basic-user", metav1.GetOptions{}); len(protected.Rules) != 0 {
		t.Error("a role with autoupdate=false was changed")
	}
	if collected, _ = roles.Get(ctx, "edit", metav1.GetOptions{}); collected.AggregationRule == nil {
		t.Error("edit did not get its aggregation rule back")
	}
	binding, _ = bindings.Get(ctx, "system:node", metav1.GetOptions{})
	if !slices.Contains(binding.Subjects, user("jane")) || !slices.Contains(binding.Subjects, group("system:nodes")) {
		t.Errorf("subjects of system:node = %v", binding.Subjects)
	}
	if foreign, _ = bindings.Get(ctx, "system:discovery", metav1.GetOptions{}); foreign.RoleRef.Name != "system:discovery" {
		t.Errorf("system:discovery still refers to %s", foreign.RoleRef.Name)
	}
}

// A rule of a few kilobytes may stand for millions of rights. None is written out, none is lost, and the role gets what
// it lacks all the same.
func TestEnsureSparesLargeRules(t *testing.T) {
	const each = 160
	var large rbacv1.PolicyRule
	for i := range each {
		large.Verbs = append(large.Verbs, fmt.Sprintf("verb-%d", i))
		large.APIGroups = append(large.APIGroups, fmt.Sprintf("group-%d", i))
		large.Resources = append(large.Resources, fmt.Sprintf("resource-%d", i))
	}
	ctx, client := t.Context(), fake.NewClientset()
	roles := client.RbacV1().ClusterRoles()
	stored := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "system:node"}, Rules: []rbacv1.PolicyRule{large}}
	if _, err := roles.Create(ctx, stored, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	for range 2 {
		if err := Ensure(ctx, client); err != nil {
			t.Fatal(err)
		}
	}
	goruntime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 500<<20 {
		t.Errorf("a rule of %d rights took %d MB", each*each*each, took>>20)
	}
	got, err := roles.Get(ctx, "system:node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if covered, missing := validation.Covers(got.Rules, NodeRules()); !covered {
		t.Errorf("the role lacks %v", missing)
	}
	kept := 0
	for i := range got.Rules {
		if apiequality.Semantic.DeepEqual(got.Rules[i], large) {
			kept++
		}
	}
	if kept != 1 {
		t.Errorf("the large rule is there %d times", kept)
	}
}

func TestEnsureReportsWhatFailed(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "clusterroles", func(action clienttesting.Action) (bool, runtime.Object, error) {
		created := action.(clienttesting.CreateAction).GetObject().(*rbacv1.ClusterRole)
		if created.Name != "view" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewInternalError(errors.New("disk"))
	})
	err := Ensure(t.Context(), client)
	if err == nil || !strings.Contains(err.Error(), "ensure cluster role view") || !strings.Contains(err.Error(), "disk") {
		t.Errorf("error = %v", err)
	}
}

// The daemon set controller's rules are a contract: tools that run it elsewhere
// rely on exactly these.
func TestDaemonSetControllerRules(t *testing.T) {
	want := []string{
		"get,list,watch apps/daemonsets",
		"update apps/daemonsets/status",
		"update apps/daemonsets/finalizers",
		"list,watch /nodes",
		"get,list,watch,create,delete,patch /pods",
		"create /pods/binding",
		"patch /pods/resize",
		"get,list,watch,create,delete,update,patch apps/controllerrevisions",
		"get,list,watch everynode.io/rolloutpolicies,nodestartups,daemonsetvariants",
		"get,list,watch,create,delete,update,patch everynode.io/daemonsetrollouts",
		"update everynode.io/rolloutpolicies/status,daemonsetrollouts/status,daemonsetvariants/status",
		"create,patch,update ,events.k8s.io/events",
	}
	roles := ClusterRoles()
	i := slices.IndexFunc(roles, func(r rbacv1.ClusterRole) bool { return r.Name == "system:controller:daemon-set-controller" })
	if i < 0 {
		t.Fatal("the role is missing")
	}
	var got []string
	for _, rule := range roles[i].Rules {
		got = append(got, strings.Join(rule.Verbs, ",")+" "+strings.Join(rule.APIGroups, ",")+"/"+strings.Join(rule.Resources, ","))
	}
	if !slices.Equal(got, want) {
		t.Errorf("rules:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestRolesAndBindingsFitTogether(t *testing.T) {
	names := map[string]bool{}
	for _, role := range ClusterRoles() {
		if names[role.Name] {
			t.Errorf("cluster role %s is listed twice", role.Name)
		}
		names[role.Name] = true
		if role.Labels[bootstrappingLabel] != "rbac-defaults" || role.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" {
			t.Errorf("%s lacks the label or annotation of a default role", role.Name)
		}
		if role.AggregationRule == nil && len(role.Rules) == 0 {
			t.Errorf("%s grants nothing", role.Name)
		}
		for _, rule := range role.Rules {
			if len(rule.Verbs) == 0 || (len(rule.NonResourceURLs) == 0) == (len(rule.Resources) == 0) {
				t.Errorf("%s has a malformed rule %v", role.Name, rule)
			}
		}
	}
	seen := map[string]bool{}
	for _, binding := range ClusterRoleBindings() {
		if seen[binding.Name] || !names[binding.RoleRef.Name] || len(binding.Subjects) == 0 {
			t.Errorf("binding %s to %s of %v is a repetition or refers to nothing", binding.Name, binding.RoleRef.Name, binding.Subjects)
		}
		seen[binding.Name] = true
	}
}

// Who may change a DaemonSet's template, and policies, must not be able to approve.
func TestEditDoesNotApprove(t *testing.T) {
	roles := map[string]rbacv1.ClusterRole{}
	for _, r := range ClusterRoles() {
		roles[r.Name] = r
	}
	admin := roles["system:aggregate-to-admin"].Rules
	for _, verb := range []string{"create", "update", "patch", "delete", "deletecollection"} {
		for _, resource := range []string{"daemonsetrollouts", "daemonsetrollouts/status", "rolloutpolicies/status"} {
			if covered, _ := validation.Covers(append(editRules(), viewRules()...), []rbacv1.PolicyRule{may(verb).on(groupEverynode, resource)}); covered {
				t.Errorf("edit grants %s of %s", verb, resource)
			}
		}
		covered, _ := validation.Covers(admin, []rbacv1.PolicyRule{may(verb).on(groupEverynode, "daemonsetrollouts")})
		if want := verb != "create"; covered != want {
			t.Errorf("admin grants %s of rollouts: %v, want %v", verb, covered, want)
		}
	}
	for _, c := range []struct {
		name  string
		rules []rbacv1.PolicyRule
		rule  rbacv1.PolicyRule
	}{
		{"view", viewRules(), read.on(groupEverynode, "rolloutpolicies", "daemonsetrollouts", "daemonsetvariants")},
		{"edit", editRules(), write.on(groupEverynode, "rolloutpolicies", "daemonsetvariants")},
	} {
		if covered, missing := validation.Covers(c.rules, []rbacv1.PolicyRule{c.rule}); !covered {
			t.Errorf("%s lacks %v", c.name, missing)
		}
	}
}

// Who may only view must not be able to read secrets or run commands.
func TestViewIsHarmless(t *testing.T) {
	dangerous := []rbacv1.PolicyRule{
		get.on(groupCore, "secrets"), may("create").on(groupCore, "pods/exec"), get.on(groupCore, "pods/exec"),
		may("create").on(groupCore, "serviceaccounts/token"), may("create").on(groupCore, "pods"),
		may("impersonate").on(groupCore, "serviceaccounts"), get.on(groupRBAC, "roles"),
	}
	for _, rule := range dangerous {
		if covered, _ := validation.Covers(viewRules(), []rbacv1.PolicyRule{rule}); covered {
			t.Errorf("view grants %v", rule)
		}
	}
	if covered, _ := validation.Covers(editRules(), []rbacv1.PolicyRule{may("create").on(groupRBAC, "rolebindings")}); covered {
		t.Error("edit grants writing role bindings")
	}
}

// Who installs metrics-server by its own manifest, and removes it, takes away the roles that it brings, and none that others read by.
func TestRolesOfMetricsServerAreItsOwn(t *testing.T) {
	reads := false
	for _, role := range ClusterRoles() {
		if role.Name == "system:aggregated-metrics-reader" || role.Name == "system:metrics-server" {
			t.Errorf("%s has the name of a role that metrics-server brings", role.Name)
		}
		reads = reads || role.Labels["rbac.authorization.k8s.io/aggregate-to-view"] == "true" &&
			slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, "metrics.k8s.io") })
	}
	if !reads {
		t.Error("the role view may not read metrics.k8s.io")
	}
}
