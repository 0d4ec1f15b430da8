package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
)

var (
	// containerResources are the native resources a container can ask for.
	containerResources = sets.New(corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage)
	// otherResources are native resources that nodes have and quotas count.
	otherResources = sets.New(corev1.ResourcePods, corev1.ResourceStorage, corev1.ResourceServices, corev1.ResourceQuotas,
		corev1.ResourceReplicationControllers, corev1.ResourceSecrets, corev1.ResourceConfigMaps,
		corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers, corev1.ResourceRequestsCPU,
		corev1.ResourceRequestsMemory,
		corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsCPU,
		corev1.ResourceLimitsMemory,
		corev1.ResourceLimitsEphemeralStorage)
	countedResources = sets.New(corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices,
		corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts,
		corev1.ResourceServicesLoadBalancers)
)

// validateRequirements checks what a container asks for and may use. Lists are
// visited by name, so that the errors always come in the same order.
func validateRequirements(r *corev1.ResourceRequirements, claims sets.Set[string], path *field.Path) field.ErrorList {
	errs := requirements(r, path, ContainerResourceName)
	seen := sets.New[corev1.ResourceClaim]()
	for i, c := range enough.Each(r.Claims, &errs) {
		at := path.Child("claims").Index(i)
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case !claims.Has(c.Name):
			errs = append(errs, field.NotFound(at.Child("name"), c.Name))
		case seen.Has(c):
			errs = append(errs, field.Duplicate(at, c.Name))
		}
		seen.Insert(c)
	}
	return errs
}

func requirements(r *corev1.ResourceRequirements, path *field.Path,
	name func(*field.Path, corev1.ResourceName) field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	limits, requests := path.Child("limits"), path.Child("requests")
	huge, base := false, false
	note := func(n corev1.ResourceName) {
		huge = huge || defaults.IsHugePages(n)
		base = base || n == corev1.ResourceCPU || n == corev1.ResourceMemory
	}
	for _, n := range enough.Each(slices.Sorted(maps.Keys(r.Limits)), &errs) {
		note(n)
		errs = append(errs, name(limits.Key(string(n)), n)...)
		errs = append(errs, Amount(limits.Key(string(n)), n, r.Limits[n])...)
	}
	for _, n := range enough.Each(slices.Sorted(maps.Keys(r.Requests)), &errs) {
		note(n)
		errs = append(errs, name(requests.Key(string(n)), n)...)
		errs = append(errs, Amount(requests.Key(string(n)), n, r.Requests[n])...)
		errs = append(errs, withinLimit(r, n, requests, limits)...)
	}
	if huge && !base {
		errs = append(errs, field.Forbidden(path, "HugePages require cpu or memory"))
	}
	return errs
}

// withinLimit compares a request with its limit.
func withinLimit(r *corev1.ResourceRequirements, name corev1.ResourceName, requests,
	limits *field.Path) field.ErrorList {
	request := r.Requests[name]
	limit, limited := r.Limits[name]
	switch {
	case !limited && !defaults.MayOvercommit(name):
		return field.ErrorList{field.Required(limits, "Limit must be set for non overcommitable resources")}
	case limited && !defaults.MayOvercommit(name) && request.Cmp(limit) != 0:
		return field.ErrorList{field.Invalid(requests, request.String(),
			fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))}
	case limited && request.Cmp(limit) > 0:
		return field.ErrorList{field.Invalid(requests, request.String(),
			fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))}
	}
	return nil
}

// ContainerResourceName checks the name of a resource that a container can ask for.
func ContainerResourceName(path *field.Path, name corev1.ResourceName) field.ErrorList {
	errs := ResourceName(path, name)
	switch {
	case !strings.Contains(string(name), "/"):
		if !containerResources.Has(name) && !defaults.IsHugePages(name) {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
		}
	case len(errs) == 0 && !defaults.IsNative(name) && !isExtended(name):
		errs = append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// ResourceName checks the name of a resource of any sort.
func ResourceName(path *field.Path, name corev1.ResourceName) field.ErrorList {
	if errs := check.LabelName(path, string(name)); len(errs) > 0 {
		return errs
	}
	if !strings.Contains(string(name), "/") && !containerResources.Has(name) && !otherResources.Has(name) &&
		!defaults.IsHugePages(name) {
		return field.ErrorList{field.Invalid(path, string(name), "must be a standard resource type or fully qualified")}
	}
	return nil
}

// isExtended reports resources that a cluster's own devices bring.
func isExtended(name corev1.ResourceName) bool {
	return !defaults.IsNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(utilvalidation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// Amount checks an amount of a resource: never below nothing, and whole where
// the resource comes in pieces.
func Amount(path *field.Path, name corev1.ResourceName, amount resource.Quantity) field.ErrorList {
	if amount.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, amount.String(), "must be greater than or equal to 0")}
	}
	if (countedResources.Has(name) || isExtended(name)) && amount.MilliValue()%1000 != 0 {
		return field.ErrorList{field.Invalid(path, amount, "must be an integer")}
	}
	return nil
}

// ValidateOverhead checks what a pod's runtime itself uses.
func ValidateOverhead(overhead corev1.ResourceList, path *field.Path) field.ErrorList {
	return requirements(&corev1.ResourceRequirements{Limits: overhead}, path, ContainerResourceName)
}

// validatePodResources checks resources given for the pod as a whole.
func validatePodResources(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	r := spec.Resources
	if r == nil {
		return nil
	}
	errs := requirements(r, path, func(at *field.Path, name corev1.ResourceName) field.ErrorList {
		if !resourcehelper.IsSupportedPodLevelResource(name) {
			return field.ErrorList{field.NotSupported(at, name,
				slices.Sorted(maps.Keys(resourcehelper.SupportedPodLevelResources())))}
		}
		return nil
	})
	if len(r.Claims) > 0 {
		errs = append(errs, field.Forbidden(path.Child("claims"), "claims may not be set for Resources at pod-level"))
	}
	sum := resourcehelper.AggregateContainerRequests(&corev1.Pod{Spec: *spec}, resourcehelper.PodResourcesOptions{})
	for _, n := range enough.Each(slices.Sorted(maps.Keys(r.Requests)), &errs) {
		total, request := sum[n], r.Requests[n]
		if total.Cmp(request) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(n)), request.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", total.String())))
		}
	}
	return errs
}
