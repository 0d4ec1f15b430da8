package definitions

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/everynode/everynode/internal/apiserver/registry/nodestartup"
	limits "github.com/everynode/everynode/internal/objects/nodestartup"
)

func startups() (*apiextensionsv1.CustomResourceDefinition, error) {
	d, err := define(nodestartup.Kind(), startupRules(), []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Nodes", Type: "integer", JSONPath: ".status.matchedNodes", Description: "How many nodes it chooses."},
		{
			Name: "Starting", Type: "integer", JSONPath: ".status.startingNodes",
			Description: "How many nodes have not started all groups.",
		},
		{
			Name: "Open", Type: "integer", JSONPath: ".status.openNodes",
			Description: "How many of the chosen nodes are not starting.",
		},
		{
			Name: "Gate", Type: "string", JSONPath: ".spec.gate",
			Description: "What keeps ordinary pods off nodes that start.",
		},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
	})
	if err != nil {
		return nil, err
	}
	schema := d.Spec.Versions[0].Schema.OpenAPIV3Schema
	cel(fmt.Sprintf("self.metadata.name.size() <= %d", limits.MaxName), fmt.Sprintf(
		"the name must have %d characters at most: it is in the taint of nodes that start", limits.MaxName))(schema)
	cel("has(self.spec) && has(self.spec.groups) && self.spec.groups.size() > 0",
		"spec.groups must not be empty: a node would have nothing to wait for")(schema)
	return d, nil
}

func startupRules() rules {
	r := rules{
		"spec.gate": {oneOf("", "Join", "None")},
		"spec.groups": {
			maxItems(limits.MaxGroups),
			cel("self.all(g, !has(g.daemonSets) || g.daemonSets.all(d, self.map(h, !has(h.daemonSets) ? 0 : "+
				"h.daemonSets.filter(e, e == d).size()).sum() == 1))", "a DaemonSet is listed once"),
		},
		"spec.groups[]": {
			cel("has(self.daemonSets) && self.daemonSets.size() > 0",
				"daemonSets must not be empty: the group would start nothing"),
			cel("!has(self.then) || self.then != 'Open' || has(self.timeout) && self.timeout != ''",
				"then: Open takes a timeout after which that is"),
		},
		"spec.groups[].daemonSets":             {maxItems(limits.MaxDaemonSets)},
		"spec.groups[].daemonSets[].namespace": {maxLength(63), pattern(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)},
		"spec.groups[].daemonSets[].name":      {maxLength(253), pattern(objectName)},
		"spec.groups[].then":                   {oneOf("", "Wait", "Open")},
		"spec.groups[].timeout": {cel(
			"self == '' || duration(self) >= duration('1s')",
			"must be a length of time such as 90s or 1h30m, of at least 1s",
		)},
	}
	r.selects("spec.nodes")
	return r.conditions()
}
