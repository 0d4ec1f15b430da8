package resourcequota

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
)

var (
	computed = sets.New(corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory)
	countedPods = sets.New(corev1.ResourcePods)
	// standard are the names without a slash that a quota can limit.
	standard = computed.Union(countedPods).Union(sets.New(
		corev1.ResourceEphemeralStorage, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsEphemeralStorage, corev1.ResourceRequestsStorage, corev1.ResourceQuotas,
		corev1.ResourceServices,
		corev1.ResourceReplicationControllers, corev1.ResourceSecrets, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceConfigMaps,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	))
	// scopes are what each scope can be combined with.
	scopes = map[corev1.ResourceQuotaScope]sets.Set[corev1.ResourceName]{
		corev1.ResourceQuotaScopeTerminating:               computed.Union(countedPods),
		corev1.ResourceQuotaScopeNotTerminating:            computed.Union(countedPods),
		corev1.ResourceQuotaScopeBestEffort:                countedPods,
		corev1.ResourceQuotaScopeNotBestEffort:             computed.Union(countedPods),
		corev1.ResourceQuotaScopePriorityClass:             computed.Union(countedPods),
		corev1.ResourceQuotaScopeCrossNamespacePodAffinity: computed.Union(countedPods),
	}
	// opposites are scopes that together hold for nothing.
	opposites = [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	}
)

func isStandard(name corev1.ResourceName) bool {
	return standard.Has(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// Validate checks a quota, metadata aside.
func Validate(q *corev1.ResourceQuota) field.ErrorList {
	path := field.NewPath("spec")
	errs := amounts(q.Spec.Hard, path.Child("hard"))
	errs = append(errs, validateScopes(&q.Spec, path.Child("scopes"))...)
	if q.Spec.ScopeSelector != nil {
		errs = append(errs, validateSelector(&q.Spec, path.Child("scopeSelector", "matchExpressions"))...)
	}
	return errs
}

// ValidateUpdate checks a changed quota, metadata aside: what it counts stays.
func ValidateUpdate(q, old *corev1.ResourceQuota) field.ErrorList {
	errs := Validate(q)
	if !sets.New(q.Spec.Scopes...).Equal(sets.New(old.Spec.Scopes...)) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, "field is immutable"))
	}
	return errs
}

// ValidateStatus checks what is said to be used.
func ValidateStatus(q *corev1.ResourceQuota) field.ErrorList {
	path := field.NewPath("status")
	var errs field.ErrorList
	if q.ResourceVersion == "" {
		errs = append(errs, field.Required(field.NewPath("resourceVersion"), ""))
	}
	errs = append(errs, amounts(q.Status.Hard, path.Child("hard"))...)
	return append(errs, amounts(q.Status.Used, path.Child("used"))...)
}

func amounts(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range enough.Each(slices.Sorted(maps.Keys(list)), &errs) {
		at := path.Key(string(name))
		if strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix) {
			errs = append(errs, podspec.Amount(at, name, list[name])...)
			continue
		}
		errs = append(errs, podspec.ResourceName(at, name)...)
		if !strings.Contains(string(name), "/") && !isStandard(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
		}
		errs = append(errs, podspec.Amount(at, name, list[name])...)
	}
	return errs
}

// fits says whether a scope can go with all limits of a quota.
func fits(scope corev1.ResourceQuotaScope, hard corev1.ResourceList) bool {
	for name := range hard {
		if isStandard(name) && !scopes[scope].Has(name) {
			return false
		}
	}
	return true
}

// contradict says whether two of them are each other's opposite.
func contradict(all sets.Set[corev1.ResourceQuotaScope]) bool {
	return slices.ContainsFunc(opposites, func(pair [2]corev1.ResourceQuotaScope) bool { return all.HasAll(pair[:]...) })
}

const (
	unsupported       = "unsupported scope"
	unsupportedWithIt = "unsupported scope applied to resource"
	conflicting       = "conflicting scopes"
)

// mostErrors is how many are told of one list: each repeats all of it.
const mostErrors = 10

func validateScopes(s *corev1.ResourceQuotaSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, scope := range enough.Each(s.Scopes, &errs) {
		switch _, known := scopes[scope]; {
		case !known:
			errs = append(errs, field.Invalid(at, s.Scopes, unsupported))
		case !fits(scope, s.Hard):
			errs = append(errs, field.Invalid(at, s.Scopes, unsupportedWithIt))
		}
		if len(errs) == mostErrors {
			return errs
		}
	}
	if contradict(sets.New(s.Scopes...)) {
		errs = append(errs, field.Invalid(at, s.Scopes, conflicting))
	}
	return errs
}

func validateSelector(s *corev1.ResourceQuotaSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	all := sets.New[corev1.ResourceQuotaScope]()
	for _, e := range enough.Each(s.ScopeSelector.MatchExpressions, &errs) {
		all.Insert(e.ScopeName)
		switch _, known := scopes[e.ScopeName]; {
		case !known:
			errs = append(errs, field.Invalid(at.Child("scopeName"), e.ScopeName, unsupported))
		case !fits(e.ScopeName, s.Hard):
			errs = append(errs, field.Invalid(at, s.ScopeSelector, unsupportedWithIt))
		}
		if e.ScopeName != corev1.ResourceQuotaScopePriorityClass && e.Operator != corev1.ScopeSelectorOpExists {
			errs = append(errs, field.Invalid(
				at.Child("operator"), e.Operator,
				"must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, "+
					"ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "+
					"ResourceQuotaScopeCrossNamespacePodAffinity",
			))
		}
		errs = append(errs, validateOperator(e, at)...)
		if len(errs) >= mostErrors {
			return errs
		}
	}
	if contradict(all) {
		errs = append(errs, field.Invalid(at, s.Scopes, conflicting))
	}
	return errs
}

func validateOperator(e corev1.ScopedResourceSelectorRequirement, at *field.Path) field.ErrorList {
	switch e.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(e.Values) == 0 {
			return field.ErrorList{field.Required(
				at.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
			)}
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(e.Values) != 0 {
			return field.ErrorList{field.Invalid(
				at.Child("values"), e.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
			)}
		}
	default:
		return field.ErrorList{field.Invalid(at.Child("operator"), e.Operator, "not a valid selector operator")}
	}
	return nil
}
