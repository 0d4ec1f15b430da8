package extensions_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestHostileDefinitions has definitions that would cost the server dearly. Each is
// refused, or harmless, and the server answers others meanwhile.
func TestHostileDefinitions(t *testing.T) {
	c := start(t)
	api := c.crds.ApiextensionsV1().CustomResourceDefinitions()
	deep := strings.Repeat(`{"type":"object","properties":{"a":`, 200) + `{"type":"string"}` + strings.Repeat(`}}`, 200)
	var wide strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&wide, `"field%d":{"type":"string","description":%q},`, i, strings.Repeat("x", 150))
	}
	for name, text := range map[string]string{
		"a rule over nested lists without bounds": `{"type":"object","properties":{"spec":{"type":"array","items":{"type":"array","items":{"type":"string"}},
			"x-kubernetes-validations":[{"rule":"self.all(a, self.all(b, a.all(x, b.all(y, x.contains(y)))))"}]}}}`,
		"a regular expression that is none":       `{"type":"object","properties":{"spec":{"type":"string","pattern":"(((("}}}`,
		"a schema larger than the database takes": `{"type":"object","properties":{` + strings.TrimSuffix(wide.String(), ",") + `}}`,
		"a rule that is no CEL":                   `{"type":"object","x-kubernetes-validations":[{"rule":"self.("}]}`,
	} {
		d := definition(t, named("hostile.example.com", "xs", "X"))
		d.Spec.Versions[0] = apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true, Storage: true, Schema: schemaOf(t, text)}
		begin := time.Now()
		if _, err := api.Create(t.Context(), d, metav1.CreateOptions{}); err == nil {
			t.Errorf("%s is accepted", name)
		} else if took := time.Since(begin); took > 30*time.Second {
			t.Errorf("%s: the refusal took %v", name, took)
		}
	}
	d := definition(t, named("hostile.example.com", "deeps", "Deep"))
	d.Spec.Versions[0] = apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true, Storage: true, Schema: schemaOf(t, deep)}
	_, _ = api.Create(t.Context(), d, metav1.CreateOptions{}) // taken or not, the server lives

	// A pattern that makes backtracking programs hang.
	d = definition(t, named("hostile.example.com", "patterns", "Pattern"))
	d.Spec.Versions[0] = apiextensionsv1.CustomResourceDefinitionVersion{Name: "v1", Served: true, Storage: true,
		Schema: schemaOf(t, `{"type":"object","properties":{"spec":{"type":"object","properties":{"x":{"type":"string","pattern":"^(a+)+$"}}}}}`)}
	c.define(d)
	begin := time.Now()
	r := widgets.GroupResource().WithVersion("v1")
	r.Group, r.Resource = "hostile.example.com", "patterns"
	if _, err := c.dynamic.Resource(r).Namespace("default").Create(t.Context(), object(r, "Pattern", "x", fmt.Sprintf(`{"x":%q}`, strings.Repeat("a", 100000)+"!")), metav1.CreateOptions{}); err == nil {
		t.Error("what does not match is accepted")
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("matching took %v", took)
	}
}

// TestManyObjects stores thousands of objects, and deletes them with their kind.
func TestManyObjects(t *testing.T) {
	const many = 10000
	c := start(t)
	c.define(definition(t))
	client := c.dynamic.Resource(widgets).Namespace("default")
	var group errgroup.Group
	group.SetLimit(64)
	for i := range many {
		group.Go(func() error {
			_, err := client.Create(t.Context(), object(widgets, "Widget", fmt.Sprintf("w%d", i), `{"color":"red"}`), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	found, next := 0, ""
	for {
		page, err := client.List(t.Context(), metav1.ListOptions{Limit: 500, Continue: next})
		if err != nil {
			t.Fatal(err)
		}
		found += len(page.Items)
		if next = page.GetContinue(); next == "" {
			break
		}
	}
	if found != many {
		t.Errorf("%d objects are listed, want %d", found, many)
	}
	if err := c.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the kind is gone", func(ctx context.Context) error {
		all, err := c.crds.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
		if err != nil || len(all.Items) > 0 {
			return fmt.Errorf("%d are left: %w", len(all.Items), err)
		}
		return nil
	})
}

// TestPoliciesHoldForCustomKinds is a policy that asks something of custom objects.
func TestPoliciesHoldForCustomKinds(t *testing.T) {
	c := start(t)
	c.define(definition(t))
	deny := []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "no-red"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.com"}, APIVersions: []string{"*"}, Resources: []string{"widgets"}}}}}},
		Validations: []admissionregistrationv1.Validation{{Expression: `object.spec.color != "red"`, Message: "no red widgets"}},
	}}
	if _, err := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-red"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "no-red", ValidationActions: deny}}
	if _, err := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := c.dynamic.Resource(widgets).Namespace("default")
	c.Eventually("the policy refuses", func(ctx context.Context) error {
		_, err := client.Create(ctx, object(widgets, "Widget", "red", `{"color":"red"}`), metav1.CreateOptions{DryRun: []string{"All"}})
		if err == nil || !strings.Contains(err.Error(), "no red widgets") {
			return fmt.Errorf("the answer is %w", err)
		}
		return nil
	})
	c.create(widgets, "default", object(widgets, "Widget", "blue", `{"color":"blue"}`))
}
