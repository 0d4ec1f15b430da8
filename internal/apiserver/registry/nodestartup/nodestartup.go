// Package nodestartup describes NodeStartup, which says what a new node starts before ordinary pods are placed on it.
package nodestartup

import (
	"context"
	"time"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// Kind names the kind.
func Kind() resource.Kind {
	return resource.Kind{
		GroupVersion: v1alpha1.GroupVersion, Kind: "NodeStartup", Plural: "nodestartups", Singular: "nodestartup",
		ShortNames: []string{"nst"}, ClusterScoped: true,
	}
}

// Definition describes the kind.
func Definition() resource.Definition {
	return resource.Of[v1alpha1.NodeStartup, v1alpha1.NodeStartupList](Kind(), resource.Rules[v1alpha1.NodeStartup]{
		Default:  func(s *v1alpha1.NodeStartup) { nodestartup.SetDefaults(&s.Spec) },
		Spec:     func(s *v1alpha1.NodeStartup) any { return &s.Spec },
		Status:   func(s *v1alpha1.NodeStartup) any { return &s.Status },
		Validate: func(_ context.Context, s *v1alpha1.NodeStartup) field.ErrorList { return nodestartup.Validate(s) },
		ValidateStatusUpdate: func(_ context.Context, s, _ *v1alpha1.NodeStartup) field.ErrorList {
			return metav1validation.ValidateConditions(s.Status.Conditions, field.NewPath("status", "conditions"))
		},
		Table: table.Of(row,
			table.Name,
			table.Column{Name: "Nodes", Type: "integer", Description: "How many nodes it chooses."},
			table.Column{Name: "Starting", Type: "integer", Description: "How many nodes have not started all groups."},
			table.Column{Name: "Open", Type: "integer", Description: "How many of the chosen nodes are not starting."},
			table.Column{Name: "Groups", Type: "integer", Description: "How many groups start one after the other."},
			table.Column{Name: "Gate", Description: "What keeps ordinary pods off nodes that start."},
			table.Age,
			table.Column{Name: "Selector", Wide: true, Description: "Labels of the nodes that it chooses."},
		),
	})
}

func row(s *v1alpha1.NodeStartup, now time.Time) []any {
	st := &s.Status
	return []any{
		s.Name, int64(st.MatchedNodes), int64(st.StartingNodes), int64(st.OpenNodes), int64(len(s.Spec.Groups)),
		string(s.Spec.Gate), table.Since(s.CreationTimestamp, now), table.OrAll(s.Spec.Nodes),
	}
}
