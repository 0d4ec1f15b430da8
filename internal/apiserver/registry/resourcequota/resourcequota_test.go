package resourcequota

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func hard(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func TestValidate(t *testing.T) {
	selector := func(scope, operator string, values ...string) *corev1.ScopeSelector {
		return &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScope(scope), Operator: corev1.ScopeSelectorOperator(operator), Values: values}}}
	}
	for name, c := range map[string]struct {
		spec corev1.ResourceQuotaSpec
		want string
	}{
		"everything": {corev1.ResourceQuotaSpec{Hard: hard("cpu", "1", "requests.memory", "1Gi", "limits.ephemeral-storage", "1Gi", "pods", "3", "count/deployments.apps", "2",
			"services.nodeports", "1", "requests.nvidia.com/gpu", "1", "hugepages-2Mi", "4Mi", "requests.hugepages-2Mi", "4Mi", "requests.storage", "1Gi")}, ""},
		"scopes":              {corev1.ResourceQuotaSpec{Hard: hard("pods", "3", "count/pods", "1"), Scopes: []corev1.ResourceQuotaScope{"BestEffort", "Terminating"}}, ""},
		"a class":             {corev1.ResourceQuotaSpec{Hard: hard("cpu", "3"), ScopeSelector: selector("PriorityClass", "In", "high")}, ""},
		"any class":           {corev1.ResourceQuotaSpec{Hard: hard("cpu", "3"), ScopeSelector: selector("PriorityClass", "Exists")}, ""},
		"unknown resource":    {corev1.ResourceQuotaSpec{Hard: hard("storage", "1")}, `spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota`},
		"part of a pod":       {corev1.ResourceQuotaSpec{Hard: hard("pods", "1500m")}, "must be an integer"},
		"less than nothing":   {corev1.ResourceQuotaSpec{Hard: hard("cpu", "-1")}, `spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0`},
		"unknown scope":       {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"Good"}}, "spec.scopes: Invalid value: [\"Good\"]: unsupported scope"},
		"scope of others":     {corev1.ResourceQuotaSpec{Hard: hard("cpu", "1"), Scopes: []corev1.ResourceQuotaScope{"BestEffort"}}, "unsupported scope applied to resource"},
		"opposites":           {corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"Terminating", "NotTerminating"}}, "conflicting scopes"},
		"no values":           {corev1.ResourceQuotaSpec{ScopeSelector: selector("PriorityClass", "In")}, "spec.scopeSelector.matchExpressions.values: Required value"},
		"values of existence": {corev1.ResourceQuotaSpec{ScopeSelector: selector("PriorityClass", "Exists", "a")}, "must be no value when"},
		"unknown operator":    {corev1.ResourceQuotaSpec{ScopeSelector: selector("PriorityClass", "Like")}, `"Like": not a valid selector operator`},
		"in best effort":      {corev1.ResourceQuotaSpec{ScopeSelector: selector("BestEffort", "In", "a")}, "must be 'Exist' when scope is any of"},
		"unknown in selector": {corev1.ResourceQuotaSpec{ScopeSelector: selector("Good", "Exists")}, `scopeName: Invalid value: "Good": unsupported scope`},
	} {
		errs := Validate(&corev1.ResourceQuota{Spec: c.spec})
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || !strings.Contains(strings.ReplaceAll(errs[0].Error(), `\"`, `"`), c.want)) {
			t.Errorf("%s: %v, want %s", name, errs, c.want)
		}
	}
}

func TestScopesStay(t *testing.T) {
	a := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"Terminating", "BestEffort"}}}
	b := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Scopes: []corev1.ResourceQuotaScope{"BestEffort", "Terminating"}}}
	if errs := ValidateUpdate(a, b); len(errs) != 0 {
		t.Errorf("in another order: %v", errs)
	}
	b.Spec.Scopes = b.Spec.Scopes[:1]
	if errs := ValidateUpdate(a, b); len(errs) != 1 || !strings.HasSuffix(errs[0].Error(), "field is immutable") {
		t.Errorf("others: %v", errs)
	}
}

func TestStatus(t *testing.T) {
	q := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: hard("storage", "1"), Used: hard("pods", "-1")}}
	if errs := ValidateStatus(q); len(errs) != 3 || errs[0].Field != "resourceVersion" || errs[1].Field != "status.hard[storage]" || errs[2].Field != "status.used[pods]" {
		t.Errorf("%v", errs)
	}
	q.Name, q.Status = "q", corev1.ResourceQuotaStatus{Hard: hard("pods", "3", "cpu", "1", "limits.cpu", "2"), Used: hard("pods", "1", "limits.cpu", "500m")}
	out, err := printer.ConvertToTable(t.Context(), q, nil)
	if err != nil || fmt.Sprint(out.Rows[0].Cells) != "[q cpu: 0/1, pods: 1/3 limits.cpu: 500m/2 <unknown>]" {
		t.Errorf("%v, %v", out, err)
	}
}
