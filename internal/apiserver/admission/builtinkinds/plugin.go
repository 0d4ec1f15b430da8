// Package builtinkinds warns of CustomResourceDefinitions of what the server itself
// serves. They are taken, as in Kubernetes: a package that brings a kind along for
// other clusters installs here too. But the server's own kinds come first, and nobody
// should believe that the definition does anything.
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
}

var _ admission.ValidationInterface = &plugin{}

// New makes the plugin; served are the groups and versions of the server's own kinds.
func New(served []schema.GroupVersion) admission.ValidationInterface {
	p := &plugin{Handler: admission.NewHandler(admission.Create, admission.Update), served: map[schema.GroupVersion]bool{}}
	for _, v := range served {
		p.served[v] = true
	}
	return p
}

var definitions = schema.GroupResource{Group: apiextensions.GroupName, Resource: "customresourcedefinitions"}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != definitions || a.GetSubresource() != "" {
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
