package flowcontrol

import (
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
)

// maxQueues bounds the memory of one level.
const maxQueues = 10_000_000

var specPath = field.NewPath("spec")

// ValidateLevel checks a priority level, metadata aside.
func ValidateLevel(l *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	errs := validateLevelSpec(l.Name, &l.Spec)
	for _, fixed := range bootstrap.MandatoryPriorityLevelConfigurations {
		if fixed.Name != l.Name {
			continue
		}
		want, rule := fixed.Spec.DeepCopy(), "spec of '%s' must equal the fixed value"
		if l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
			want.Exempt, rule = l.Spec.Exempt, "spec of '%s' except the 'spec.exempt' field must equal the fixed value"
		}
		if !alike.Values(&l.Spec, want) {
			errs = append(errs, field.Invalid(specPath, l.Spec, fmt.Sprintf(rule, l.Name)))
		}
	}
	return append(errs, validateConditions(l.Status.Conditions)...)
}

func validateLevelSpec(name string, spec *flowcontrolv1.PriorityLevelConfigurationSpec) field.ErrorList {
	var errs field.ErrorList
	isExempt := spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	if isExempt != (name == flowcontrolv1.PriorityLevelConfigurationNameExempt) {
		errs = append(errs, field.Invalid(
			specPath.Child("type"), spec.Type, "type must be 'Exempt' if and only if `name` is 'exempt'",
		))
	}
	switch spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if spec.Limited != nil {
			errs = append(errs, field.Forbidden(specPath.Child("limited"), "must be nil if the type is Exempt"))
		}
		if e := spec.Exempt; e != nil {
			errs = append(errs, shares(specPath.Child("exempt"), e.NominalConcurrencyShares, e.LendablePercent)...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if spec.Exempt != nil {
			errs = append(errs, field.Forbidden(specPath.Child("exempt"), "must be nil if the type is Limited"))
		}
		if spec.Limited == nil {
			return append(errs, field.Required(specPath.Child("limited"), "must not be empty when type is Limited"))
		}
		errs = append(errs, validateLimited(spec.Limited, specPath.Child("limited"))...)
	default:
		errs = append(errs, field.NotSupported(specPath.Child("type"), spec.Type,
			[]flowcontrolv1.PriorityLevelEnablement{
				flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited,
			}))
	}
	return errs
}

func shares(path *field.Path, nominal, lendable *int32) field.ErrorList {
	var errs field.ErrorList
	if nominal != nil && *nominal < 0 {
		errs = append(errs, field.Invalid(path.Child("nominalConcurrencyShares"), *nominal, "must be a non-negative integer"))
	}
	if lendable != nil && (*lendable < 0 || *lendable > 100) {
		errs = append(errs, field.Invalid(path.Child("lendablePercent"), *lendable, "must be between 0 and 100, inclusive"))
	}
	return errs
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, path *field.Path) field.ErrorList {
	errs := shares(path, l.NominalConcurrencyShares, l.LendablePercent)
	if b := l.BorrowingLimitPercent; b != nil && *b < 0 {
		errs = append(errs, field.Invalid(
			path.Child("borrowingLimitPercent"), *b, "if specified, must be a non-negative integer",
		))
	}
	path = path.Child("limitResponse")
	switch r := l.LimitResponse; r.Type {
	case flowcontrolv1.LimitResponseTypeReject:
		if r.Queuing != nil {
			errs = append(errs, field.Forbidden(
				path.Child("queuing"), "must be nil if limited.limitResponse.type is not Limited",
			))
		}
	case flowcontrolv1.LimitResponseTypeQueue:
		if r.Queuing == nil {
			return append(errs, field.Required(
				path.Child("queuing"), "must not be empty if limited.limitResponse.type is Limited",
			))
		}
		errs = append(errs, validateQueuing(r.Queuing, path.Child("queuing"))...)
	default:
		errs = append(errs, field.NotSupported(path.Child("type"), r.Type,
			[]flowcontrolv1.LimitResponseType{flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject}))
	}
	return errs
}

func validateQueuing(q *flowcontrolv1.QueuingConfiguration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	const positive = "must be positive"
	if q.QueueLengthLimit <= 0 {
		errs = append(errs, field.Invalid(path.Child("queueLengthLimit"), q.QueueLengthLimit, positive))
	}
	switch {
	case q.Queues <= 0:
		errs = append(errs, field.Invalid(path.Child("queues"), q.Queues, positive))
	case q.Queues > maxQueues:
		errs = append(errs, field.Invalid(
			path.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues),
		))
	}
	switch {
	case q.HandSize <= 0:
		errs = append(errs, field.Invalid(path.Child("handSize"), q.HandSize, positive))
	case q.HandSize > q.Queues:
		errs = append(errs, field.Invalid(
			path.Child("handSize"), q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues),
		))
	default:
		if bits := shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)); bits > shufflesharding.MaxHashBits {
			errs = append(errs, field.Invalid(path.Child("handSize"), q.HandSize,
				fmt.Sprintf(
					"required entropy bits of deckSize %d and handSize %d should not be greater than %d",
					q.Queues, q.HandSize, shufflesharding.MaxHashBits,
				)))
		}
	}
	return errs
}

// condition is one of either kind.
type condition interface {
	flowcontrolv1.FlowSchemaCondition | flowcontrolv1.PriorityLevelConfigurationCondition
}

func validateConditions[C condition](conditions []C) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, c := range enough.Each(conditions, &errs) {
		path := field.NewPath("status", "conditions").Index(i).Child("type")
		var kind string
		switch c := any(c).(type) {
		case flowcontrolv1.FlowSchemaCondition:
			kind = string(c.Type)
		case flowcontrolv1.PriorityLevelConfigurationCondition:
			kind = string(c.Type)
		}
		switch {
		case kind == "":
			errs = append(errs, field.Required(path, "must not be empty"))
		case seen[kind]:
			errs = append(errs, field.Duplicate(path, kind))
		}
		seen[kind] = true
	}
	return errs
}
