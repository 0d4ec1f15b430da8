package resource

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Strategies are what writes of the kind go through: those of an object, and those of its status.
func (d Definition) Strategies(typer runtime.ObjectTyper) (rest.RESTCreateStrategy, []rest.RESTUpdateStrategy) {
	base := strategy{ObjectTyper: typer, kind: d.Kind, untyped: d.rules}
	updates := []rest.RESTUpdateStrategy{base}
	if d.HasStatus() {
		updates = append(updates, statusStrategy{base})
	}
	return base, updates
}
