// Package builtinkinds warns of CustomResourceDefinitions of what the server itself
// serves. They are taken, as in Kubernetes: a package that brings a kind along for
// other clusters installs here too. But the server's own kinds come first, and nobody
// should believe that the definition does anything. APIServices that would hand such a
// group to another server are refused.
package builtinkinds

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
)

type plugin struct {
	*admission.Handler
	served map[schema.GroupVersion]bool
	// groups are those that nobody else may answer for.
	groups map[string]bool
}

var _ admission.ValidationInterface = &plugin{}

// New makes the plugin; served are the groups and versions of the server's own kinds,
// and offered are groups of them that others may take over.
func New(served []schema.GroupVersion, offered ...string) admission.ValidationInterface {
	p := &plugin{Handler: admission.NewHandler(admission.Create, admission.Update), served: map[schema.GroupVersion]bool{},
		groups: map[string]bool{}}
	for _, v := range served {
		p.served[v], p.groups[v.Group] = true, true
	}
	for _, group := range offered {
		delete(p.groups, group)
	}
	return p
}

var definitions = schema.GroupResource{Group: apiextensions.GroupName, Resource: "customresourcedefinitions"}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	switch resource := a.GetResource().GroupResource(); {
	case a.GetSubresource() != "":
		return nil
	case resource == apiServices:
		return p.validateService(a)
	case resource != definitions:
		return nil
	}
	definition, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("expected a CustomResourceDefinition but got a %T", a.GetObject()))
	}
	if definition.DeletionTimestamp != nil {
		return nil
	}
	for i, v := range definition.Spec.Versions {
		version := schema.GroupVersion{Group: definition.Spec.Group, Version: v.Name}
		if v.Served && p.served[version] {
			warning.AddWarning(ctx, "", fmt.Sprintf(
				"spec.versions[%d]: %s is served by the server itself; this definition has no effect on it", i, version))
		}
	}
	return nil
}
