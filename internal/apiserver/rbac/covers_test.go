package rbac

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// What a user lacks is what Kubernetes' own comparison says.
func TestUncoveredIsWhatKubernetesSays(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	some := func(least int, of ...string) (out []string) {
		for range least + random.IntN(3) {
			out = append(out, of[random.IntN(len(of))])
		}
		return out
	}
	make1 := func() rbacv1.PolicyRule {
		r := rbacv1.PolicyRule{Verbs: some(1, "get", "list", "*")}
		if random.IntN(4) == 0 {
			r.NonResourceURLs = some(1, "/a", "/a/b", "/a/*", "/*", "*", "/b**")
			return r
		}
		r.APIGroups, r.Resources = some(1, "", "apps", "*"), some(1, "pods", "pods/log", "*/log", "*", "pods/a/b", "*/a/b", "daemonsets/log")
		if random.IntN(2) == 0 {
			r.ResourceNames = some(0, "x", "y", "z")
		}
		return r
	}
	refused := 0
	for range 20_000 {
		var held, wanted []rbacv1.PolicyRule
		for range random.IntN(4) {
			held = append(held, make1())
		}
		for range random.IntN(3) {
			wanted = append(wanted, make1())
		}
		ok, want := validation.Covers(held, wanted)
		got, err := uncovered(held, wanted)
		if err != nil || (len(got) == 0) != ok {
			t.Fatalf("%v of %v: %v, %v, want %v", wanted, held, got, err, want)
		}
		text := func(rules []rbacv1.PolicyRule) (lines []string) {
			for _, rule := range rules {
				lines = append(lines, describeRule(rule))
			}
			slices.Sort(lines)
			return slices.Compact(lines)
		}
		var each []rbacv1.PolicyRule
		for _, r := range got {
			each = append(each, r.rule())
		}
		if !slices.Equal(text(each), text(want)) {
			t.Fatalf("%v of %v: %v, want %v", wanted, held, text(each), text(want))
		}
		if !ok {
			refused++
		}
	}
	if refused < 1000 || refused > 19_000 {
		t.Errorf("%d of 20000 are refused, so this compares little", refused)
	}
}

// A role of some kilobytes that grants a thousand million rights, or of a megabyte with very many resources, is
// refused, and not multiplied out or compared with itself: that would take gigabytes, or so long that go test ends it.
func TestRolesOfManyRights(t *testing.T) {
	resolver, client := resolverOf(t,
		clusterRole("podder", rule("get,list", "", "pods")), clusterRole("all", rule("*", "*", "*")),
		binding("ns", "ClusterRole", "podder", "user:jane"), clusterBinding("all", "user:root"))
	e := NewEscalation(resolver, NewAuthorizer(resolver), client.RbacV1())
	many := func(n int, prefix string) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprint(prefix, i))
		}
		return out
	}
	thousand := rbacv1.PolicyRule{APIGroups: many(1000, "g"), Resources: many(1000, "r"), Verbs: many(1000, "v"), ResourceNames: many(1000, "n")}
	long := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: many(200_000, "r"), Verbs: []string{"get"}}
	for name, r := range map[string]rbacv1.PolicyRule{"a thousand of each": thousand, "long": long} {
		role := role("ns", "r", r)
		if err := e.Check(t.Context(), person("jane"), role, nil); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "and perhaps more") || len(err.Error()) > 1_000_000 {
			t.Errorf("%s: not refused with a message that ends: %.300v", name, err)
		}
		if err := e.Check(t.Context(), person("root"), role, nil); err != nil {
			t.Errorf("%s, by one who holds all: %v", name, err)
		}
	}
	// Only together do the rules that she holds grant it, so each right must be looked at, and there are too many.
	held := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: many(500, "r"), Verbs: []string{"*"}}, {APIGroups: []string{"*"}, Resources: thousand.Resources[500:], Verbs: []string{"*"}}}
	if missing, err := uncovered(held, []rbacv1.PolicyRule{thousand}); !errors.Is(err, errTooManyRights) || missing != nil {
		t.Errorf("%d are missing, %v; want that there are too many", len(missing), err)
	}
}
