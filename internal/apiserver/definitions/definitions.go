// Package definitions makes CustomResourceDefinitions of Everynode's own kinds, for
// Kubernetes APIs that do not have them built in. The schemas come from the same
// types, descriptions and defaults as the built-in kinds', the rules in them accept
// and refuse the same as package rolloutpolicy, and as package variant as far as a schema can.
//
// The columns that kubectl prints are written here too: they are paths into an object, where the tables of the built-in
// kinds compute (internal/apiserver/registry/rollout for two of them). The Helm chart holds what Print writes.
package definitions

import (
	"fmt"
	"io"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/registry/rollout"
	"github.com/everynode/everynode/internal/apiserver/resource"
)

// SchemaAnnotation says how much a definition knows: of two the one with the greater number has what the other has.
const SchemaAnnotation = "everynode.io/schema"

// All returns the definitions.
func All() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	policies, err := define(rollout.Policies(), policyRules(), []apiextensionsv1.CustomResourceColumnDefinition{
		{
			Name:        "Matches",
			Type:        "integer",
			JSONPath:    ".status.matchedCount",
			Description: "How many DaemonSets follow the policy.",
		},
		{
			Name:        "Failure",
			Type:        "string",
			JSONPath:    ".spec.failure.then",
			Description: "What happens when a revision has failed.",
		},
		{Name: "Over", Type: "string", JSONPath: ".spec.failure.max", Description: "On how many nodes it may fail."},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
	})
	if err != nil {
		return nil, err
	}
	rollouts, err := define(rollout.Rollouts(), rolloutRules(), []apiextensionsv1.CustomResourceColumnDefinition{
		{Name: "Phase", Type: "string", JSONPath: ".status.phase", Description: "What the rollout does."},
		{Name: "Step", Type: "string", JSONPath: ".status.step", Description: "The furthest step that has begun."},
		{
			Name:        "Current",
			Type:        "integer",
			JSONPath:    ".status.counts.Current",
			Description: "Nodes that have the target, available.",
		},
		{
			Name:        "Failed",
			Type:        "integer",
			JSONPath:    ".status.counts.FailedRevision",
			Description: "Nodes on which the target fails.",
		},
		{
			Name:        "Stable",
			Type:        "string",
			JSONPath:    ".status.stableRevision",
			Description: "The last revision that was complete without failing.",
		},
		{
			Name:        "Target",
			Type:        "string",
			JSONPath:    ".status.targetRevision",
			Description: "The revision that nodes are led to.",
		},
		{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
		{Name: "Message", Type: "string", JSONPath: ".status.message", Description: "Why.", Priority: 1},
	})
	if err != nil {
		return nil, err
	}
	of, err := variants()
	if err != nil {
		return nil, err
	}
	starting, err := startups()
	if err != nil {
		return nil, err
	}
	return []*apiextensionsv1.CustomResourceDefinition{policies, rollouts, of, starting}, nil
}

// Print writes the definitions as YAML that kubectl apply takes.
func Print(out io.Writer) error {
	all, err := All()
	if err != nil {
		return err
	}
	for _, d := range all {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
		if err != nil {
			return fmt.Errorf("write the definition %s: %w", d.Name, err)
		}
		// Only the API server says these.
		unstructured.RemoveNestedField(object, "status")
		unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("write the definition %s: %w", d.Name, err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return err
		}
	}
	return nil
}

func define(kind resource.Kind, rules rules,
	columns []apiextensionsv1.CustomResourceColumnDefinition) (*apiextensionsv1.CustomResourceDefinition, error) {
	schema, err := schemaOf(kind)
	if err == nil {
		err = rules.addTo(schema)
	}
	if err != nil {
		return nil, fmt.Errorf("define %s: %w", kind.Kind, err)
	}
	scope := apiextensionsv1.NamespaceScoped
	if kind.ClusterScoped {
		scope = apiextensionsv1.ClusterScoped
	}
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{
			APIVersion: apiextensionsv1.SchemeGroupVersion.String(),
			Kind:       "CustomResourceDefinition",
		},
		ObjectMeta: metav1.ObjectMeta{Name: kind.Plural + "." + kind.GroupVersion.Group,
			Annotations: map[string]string{SchemaAnnotation: strconv.Itoa(v1alpha1.Schema)}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.GroupVersion.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: kind.Plural, Singular: kind.Singular, ShortNames: kind.ShortNames, Categories: kind.Categories,
				Kind: kind.Kind, ListKind: kind.Kind + "List",
			},
			Scope: scope,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.GroupVersion.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
				AdditionalPrinterColumns: columns,
			}},
		},
	}, nil
}
