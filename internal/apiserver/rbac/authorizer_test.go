package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func rule(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: split(verbs), APIGroups: strings.Split(groups, ","), Resources: split(resources), ResourceNames: names}
}

func split(text string) []string { return strings.Split(text, ",") }

func path(verbs string, urls ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: split(verbs), NonResourceURLs: urls}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func role(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules}
}

// subject reads "user:jane", "group:devs" or "sa:namespace/name".
func subject(text string) rbacv1.Subject {
	kind, name, _ := strings.Cut(text, ":")
	switch kind {
	case "user":
		return rbacv1.Subject{Kind: "User", APIGroup: rbacv1.GroupName, Name: name}
	case "group":
		return rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: name}
	}
	namespace, name, _ := strings.Cut(name, "/")
	return rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: name}
}

func clusterBinding(role string, subjects ...string) *rbacv1.ClusterRoleBinding {
	b := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role + "-binding"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	for _, s := range subjects {
		b.Subjects = append(b.Subjects, subject(s))
	}
	return b
}

func binding(namespace, kind, role string, subjects ...string) *rbacv1.RoleBinding {
	b := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role + "-binding"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
	}
	for _, s := range subjects {
		b.Subjects = append(b.Subjects, subject(s))
	}
	return b
}

// resolverOf reads objects through real informers.
func resolverOf(t *testing.T, objects ...runtime.Object) (*Resolver, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactory(client, 0)
	resolver, err := NewResolver(factory)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if !resolver.HasSynced() {
		t.Fatal("the resolver has not synced")
	}
	return resolver, client
}

func person(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: groups}
}

// ask reads "verb group/resource[/subresource] namespace name" with - for nothing, or "verb /path".
func ask(who user.Info, text string) authorizer.AttributesRecord {
	fields := strings.Fields(text)
	if strings.HasPrefix(fields[1], "/") && len(fields) == 2 {
		return authorizer.AttributesRecord{User: who, Verb: fields[0], Path: fields[1]}
	}
	for i := range fields {
		if fields[i] == "-" {
			fields[i] = ""
		}
	}
	parts := append(strings.SplitN(fields[1], "/", 3), "")
	return authorizer.AttributesRecord{
		User: who, Verb: fields[0], APIGroup: parts[0], Resource: parts[1], Subresource: parts[2],
		Namespace: fields[2], Name: fields[3], ResourceRequest: true,
	}
}

func TestAuthorize(t *testing.T) {
	resolver, _ := resolverOf(t,
		clusterRole("reader", rule("get,list", "", "pods,pods/log"), path("get", "/healthz", "/metrics/*")),
		clusterRole("scaler", rule("update", "*", "*/scale")),
		clusterRole("one", rule("get,update", "apps", "daemonsets", "agent")),
		clusterRole("all", rule("*", "*", "*"), path("*", "*")),
		role("ns", "secrets", rule("get", "", "secrets")),
		clusterBinding("reader", "group:readers", "sa:ns/robot"),
		clusterBinding("scaler", "user:jane"),
		clusterBinding("one", "user:jane"),
		clusterBinding("all", "user:root"),
		clusterBinding("missing", "user:lost"),
		binding("ns", "Role", "secrets", "user:jane", "sa:/local"),
		binding("ns", "ClusterRole", "reader", "user:guest"),
		binding("ns", "Role", "gone", "user:lost"),
	)
	readers, robot := person("bob", "readers"), person("system:serviceaccount:ns:robot", "system:serviceaccounts")
	jane, guest, root := person("jane"), person("guest"), person("root")
	cases := []struct {
		who   user.Info
		asks  string
		allow bool
	}{
		{readers, "get /pods ns p", true},
		{readers, "get /pods - p", true},
		{readers, "list /pods/log ns -", true},
		{readers, "watch /pods ns -", false},
		{readers, "get /pods/exec ns p", false},
		{readers, "get apps/pods ns p", false},
		{readers, "get /secrets ns s", false},
		{readers, "get /healthz", true},
		{readers, "get /metrics/cadvisor", true},
		{readers, "get /metrics", false},
		{readers, "post /healthz", false},
		{robot, "get /pods other p", true},
		{person("robot"), "get /pods ns p", false},
		{person("readers"), "get /pods ns p", false}, // a user of a group's name
		{jane, "update apps/deployments/scale ns d", true},
		{jane, "update apps/deployments ns d", false},
		{jane, "get apps/daemonsets ns agent", true},
		{jane, "get apps/daemonsets ns other", false},
		{jane, "list apps/daemonsets ns -", false}, // a list has no name
		{jane, "get /secrets ns s", true},
		{jane, "get /secrets other s", false},
		{jane, "get /secrets - s", false},
		{person("system:serviceaccount:ns:local"), "get /secrets ns s", true}, // the binding's namespace
		{guest, "get /pods ns p", true},
		{guest, "get /pods other p", false},
		{guest, "get /healthz", false}, // a namespace's binding grants no path
		{root, "deletecollection example.com/things/x ns -", true},
		{root, "delete /anything", true},
		{person(""), "get /pods ns p", false},
	}
	a := NewAuthorizer(resolver)
	for _, c := range cases {
		decision, reason, err := a.Authorize(t.Context(), ask(c.who, c.asks))
		if err != nil || (decision == authorizer.DecisionAllow) != c.allow {
			t.Errorf("%s %v: %s %q, want allowed %v", c.who.GetName(), c.asks, decision, reason, c.allow)
		}
		if decision == authorizer.DecisionDeny {
			t.Errorf("%s %s: denied; RBAC only ever has no opinion", c.who.GetName(), c.asks)
		}
	}
	_, reason, err := a.Authorize(t.Context(), ask(person("lost"), "get /pods ns p"))
	if err != nil || !strings.Contains(reason, `"missing" not found`) || !strings.Contains(reason, `"gone" not found`) {
		t.Errorf("reason = %q, %v; want both missing roles named", reason, err)
	}
	_, reason, _ = a.Authorize(t.Context(), ask(jane, "get /secrets ns s"))
	if want := `RBAC: allowed by RoleBinding "secrets-binding/ns" of Role "secrets" to User "jane"`; reason != want {
		t.Errorf("reason = %q, want %q", reason, want)
	}
}

func TestRequestsBeforeRolesAreReadWait(t *testing.T) {
	client := fake.NewClientset(clusterRole("all", rule("*", "*", "*")), clusterBinding("all", "user:root"))
	factory := informers.NewSharedInformerFactory(client, 0)
	resolver, err := NewResolver(factory)
	if err != nil {
		t.Fatal(err)
	}
	early, request := NewAuthorizer(resolver), ask(person("root"), "get /pods ns p")
	ended, end := context.WithCancel(t.Context())
	end()
	decision, _, err := early.Authorize(ended, request)
	if decision != authorizer.DecisionNoOpinion || !errors.Is(err, context.Canceled) {
		t.Errorf("a request that ends before the roles are read: %s, %v; want no opinion and why", decision, err)
	}
	factory.Start(t.Context().Done())
	t.Cleanup(factory.Shutdown)
	decision, _, err = early.Authorize(t.Context(), request)
	if decision != authorizer.DecisionAllow || err != nil {
		t.Errorf("a request that can wait: %s, %v; want it allowed", decision, err)
	}
}

func TestRulesFor(t *testing.T) {
	resolver, _ := resolverOf(t,
		clusterRole("reader", rule("get", "", "pods"), path("get", "/healthz")), clusterBinding("reader", "user:jane"),
		role("ns", "secrets", rule("list", "", "secrets")), binding("ns", "Role", "secrets", "user:jane"),
		binding("ns", "Role", "gone", "user:jane"))
	resources, paths, incomplete, err := NewAuthorizer(resolver).RulesFor(t.Context(), person("jane"), "ns")
	if len(resources) != 2 || len(paths) != 1 || incomplete || err == nil {
		t.Errorf("%d resource rules, %d paths, incomplete %v, %v; want 2, 1, false and the missing role", len(resources), len(paths), incomplete, err)
	}
	resources, _, _, _ = NewAuthorizer(resolver).RulesFor(t.Context(), person("jane"), "other")
	if len(resources) != 1 || !slices.Equal(resources[0].GetResources(), []string{"pods"}) {
		t.Errorf("in another namespace: %v", resources)
	}
}

// A decision must not become slower with bindings of others.
func BenchmarkAuthorize(b *testing.B) {
	for _, others := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("bindings=%d", others), func(b *testing.B) {
			factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			resolver, err := NewResolver(factory)
			if err != nil {
				b.Fatal(err)
			}
			store := factory.Rbac().V1().ClusterRoles().Informer().GetStore()
			_ = store.Add(clusterRole("reader", rule("get", "", "pods")))
			for i := range others {
				extra := clusterBinding("reader", fmt.Sprintf("user:u%d", i))
				extra.Name = fmt.Sprint(i)
				_ = resolver.clusterBindings.Add(extra)
			}
			a, request := NewAuthorizer(resolver), ask(person("u5", "g1", "g2"), "get /pods ns p")
			b.ReportAllocs()
			for b.Loop() {
				if decision, _, _ := a.Authorize(context.Background(), request); decision != authorizer.DecisionAllow {
					b.Fatal(decision)
				}
			}
		})
	}
}
