// Package flowcontrol describes the kinds of flowcontrol.apiserver.k8s.io/v1: which
// requests belong together, and how much of the server each such group may use.
package flowcontrol

import (
	"context"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// Definitions returns the kinds.
func Definitions() []resource.Definition {
	return []resource.Definition{
		resource.Of[flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaList](resource.Kind{
			GroupVersion: flowcontrolv1.SchemeGroupVersion, Kind: "FlowSchema",
			Plural: "flowschemas", Singular: "flowschema", ClusterScoped: true,
		}, resource.Rules[flowcontrolv1.FlowSchema]{
			Default:  setSchemaDefaults,
			Spec:     func(f *flowcontrolv1.FlowSchema) any { return &f.Spec },
			Status:   func(f *flowcontrolv1.FlowSchema) any { return &f.Status },
			Validate: func(_ context.Context, f *flowcontrolv1.FlowSchema) field.ErrorList { return ValidateSchema(f) },
			ValidateStatusUpdate: func(_ context.Context, f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
				return validateConditions(f.Status.Conditions)
			},
			RequireResourceVersion: true,
			Table:                  schemaPrinter,
		}),
		resource.Of[flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationList](resource.Kind{
			GroupVersion: flowcontrolv1.SchemeGroupVersion, Kind: "PriorityLevelConfiguration",
			Plural: "prioritylevelconfigurations", Singular: "prioritylevelconfiguration", ClusterScoped: true,
		}, resource.Rules[flowcontrolv1.PriorityLevelConfiguration]{
			Default: setLevelDefaults,
			Spec:    func(l *flowcontrolv1.PriorityLevelConfiguration) any { return &l.Spec },
			Status:  func(l *flowcontrolv1.PriorityLevelConfiguration) any { return &l.Status },
			Validate: func(_ context.Context, l *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
				return ValidateLevel(l)
			},
			ValidateStatusUpdate: func(_ context.Context, l, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
				return validateConditions(l.Status.Conditions)
			},
			RequireResourceVersion: true,
			Table:                  levelPrinter,
		}),
	}
}

// What is not said of a queue, a schema or a level.
const (
	defaultPrecedence       = 1000
	defaultShares           = 30
	defaultHandSize         = 8
	defaultQueues           = 64
	defaultQueueLengthLimit = 50
)

func setSchemaDefaults(f *flowcontrolv1.FlowSchema) {
	if f.Spec.MatchingPrecedence == 0 {
		f.Spec.MatchingPrecedence = defaultPrecedence
	}
}

func setLevelDefaults(l *flowcontrolv1.PriorityLevelConfiguration) {
	orElse := func(field **int32, value int32) {
		if *field == nil {
			*field = ptr.To(value)
		}
	}
	if e := l.Spec.Exempt; e != nil {
		orElse(&e.NominalConcurrencyShares, 0)
		orElse(&e.LendablePercent, 0)
	}
	limited := l.Spec.Limited
	if limited == nil {
		return
	}
	orElse(&limited.NominalConcurrencyShares, defaultShares)
	orElse(&limited.LendablePercent, 0)
	if q := limited.LimitResponse.Queuing; q != nil {
		for field, value := range map[*int32]int32{
			&q.HandSize:         defaultHandSize,
			&q.Queues:           defaultQueues,
			&q.QueueLengthLimit: defaultQueueLengthLimit,
		} {
			if *field == 0 {
				*field = value
			}
		}
	}
}

var schemaPrinter = table.Of(schemaRow, table.Name,
	table.Column{Name: "PriorityLevel", Description: "Name of the priority level that matching requests belong to."},
	table.Column{
		Name:        "MatchingPrecedence",
		Type:        "integer",
		Description: "Of the schemas that match a request the one with the lowest number counts.",
	},
	table.Column{Name: "DistinguisherMethod", Description: "How requests that match are told apart into flows."},
	table.Age,
	table.Column{Name: "MissingPL", Description: "Whether the priority level does not exist."},
)

func schemaRow(f *flowcontrolv1.FlowSchema, now time.Time) []any {
	method, missing := "<none>", "?"
	if d := f.Spec.DistinguisherMethod; d != nil {
		method = string(d.Type)
	}
	for _, c := range f.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			missing = string(c.Status)
		}
	}
	return []any{
		f.Name,
		f.Spec.PriorityLevelConfiguration.Name,
		int64(f.Spec.MatchingPrecedence),
		method,
		table.Since(f.CreationTimestamp, now),
		missing,
	}
}

var levelPrinter = table.Of(levelRow, table.Name,
	table.Column{Name: "Type", Description: "Whether requests are limited."},
	table.Column{Name: "NominalConcurrencyShares", Description: "The part of the server that the level has."},
	table.Column{Name: "Queues", Description: "How many queues the level has."},
	table.Column{Name: "HandSize", Description: "Among how many queues a flow's requests are spread."},
	table.Column{Name: "QueueLengthLimit", Description: "How many requests may wait in a queue."},
	table.Age,
)

func levelRow(l *flowcontrolv1.PriorityLevelConfiguration, now time.Time) []any {
	shares, queues, hand, length := any("<none>"), any("<none>"), any("<none>"), any("<none>")
	if e := l.Spec.Exempt; e != nil {
		shares = ptr.Deref(e.NominalConcurrencyShares, 0)
	}
	if limited := l.Spec.Limited; limited != nil {
		shares = ptr.Deref(limited.NominalConcurrencyShares, 0)
		if q := limited.LimitResponse.Queuing; q != nil {
			queues, hand, length = q.Queues, q.HandSize, q.QueueLengthLimit
		}
	}
	return []any{l.Name, string(l.Spec.Type), shares, queues, hand, length, table.Since(l.CreationTimestamp, now)}
}
