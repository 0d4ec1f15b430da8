package definitions

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/everynode/everynode/internal/apiserver/registry/daemonsetvariant"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/change/variant/formula"
)

func variants() (*apiextensionsv1.CustomResourceDefinition, error) {
	return define(daemonsetvariant.Kind(), variantRules(), []apiextensionsv1.CustomResourceColumnDefinition{
		{
			Name: "Priority", Type: "integer", JSONPath: ".spec.priority",
			Description: "Which of several variants of a node applies.",
		},
		{
			Name: "DaemonSets", Type: "integer", JSONPath: ".status.daemonSets",
			Description: "How many DaemonSets it chooses.",
		},
		{Name: "Nodes", Type: "integer", JSONPath: ".status.nodes", Description: "How many pods' nodes it applies to."},
		{
			Name: "Applies", Type: "string", JSONPath: `.status.conditions[?(@.type=="Applies")].status`,
			Description: "Whether all its nodes have it or can have it.",
		},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
		{
			Name: "Why", Type: "string", JSONPath: `.status.conditions[?(@.type=="Applies")].message`, Priority: 1,
			Description: "What stands in the way.",
		},
	})
}

// variantRules say what a schema can. What it cannot, whether a formula can be computed and what a patch changes, the
// controller says in the condition Applies.
func variantRules() rules {
	r := rules{"spec.resources": {
		maxProperties(variant.MaxContainers),
		cel("self.all(k, k.size() <= 63 && k.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",
			"each key must be the name of a container"),
	}}
	for _, kind := range []string{"requests", "limits"} {
		at := "spec.resources{}." + kind
		r[at] = []rule{maxProperties(3), cel("self.all(k, k in ['cpu', 'memory', 'ephemeral-storage'])",
			"there are formulas for cpu, memory and ephemeral-storage")}
		r[at+"{}"] = []rule{notEmpty, maxLength(formula.Max)}
	}
	r.selects("spec.daemonSets")
	r.selects("spec.nodes")
	return r.conditions()
}
