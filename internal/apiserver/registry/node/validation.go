package node

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/placement"
)

var cidrsPath = field.NewPath("spec", "podCIDRs")

// Validate checks a new node, metadata aside.
func Validate(n *corev1.Node) field.ErrorList {
	errs := validateTaints(n.Spec.Taints)
	errs = append(errs, validateResources(n)...)
	errs = append(errs, validateCIDRs(n.Spec.PodCIDRs)...)
	// Kubernetes looks at the addresses of changed nodes only, so that a new one
	// could be stored that could never be changed.
	return append(errs, validateAddresses(n)...)
}

// ValidateUpdate checks a changed node, metadata aside: whichever part of it
// was changed, its identity stays.
func ValidateUpdate(n, old *corev1.Node) field.ErrorList {
	errs := append(validateResources(n), validateAddresses(n)...)
	if len(old.Spec.PodCIDRs) > 0 && !slices.Equal(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(cidrsPath, "node updates may not change podCIDR except from \"\" to valid"))
	} else if len(old.Spec.PodCIDRs) == 0 {
		errs = append(errs, validateCIDRs(n.Spec.PodCIDRs)...)
	}
	if old.Spec.ProviderID != "" && n.Spec.ProviderID != old.Spec.ProviderID {
		errs = append(errs, field.Forbidden(
			field.NewPath("spec", "providerID"), "node updates may not change providerID except from \"\" to valid",
		))
	}
	if !alike.Values(n.Spec.Taints, old.Spec.Taints) {
		errs = append(errs, validateTaints(n.Spec.Taints)...)
	}
	if n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "externalID"), "may not be updated"))
	}
	return errs
}

func validateAddresses(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "addresses")
	seen := sets.New[corev1.NodeAddress]()
	for i, a := range enough.Each(n.Status.Addresses, &errs) {
		if seen.Has(a) {
			errs = append(errs, field.Duplicate(path.Index(i), a))
		}
		seen.Insert(a)
	}
	return errs
}

// validateTaints reports taints under metadata, as Kubernetes does.
func validateTaints(taints []corev1.Taint) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("metadata", "taints")
	seen := sets.New[[2]string]()
	for i, t := range enough.Each(taints, &errs) {
		at := path.Index(i)
		for _, m := range utilvalidation.IsQualifiedName(t.Key) {
			errs = append(errs, field.Invalid(at.Child("key"), t.Key, m))
		}
		if m := utilvalidation.IsValidLabelValue(t.Value); len(m) > 0 {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, strings.Join(m, ";")))
		}
		if t.Effect == "" {
			errs = append(errs, field.Required(at.Child("effect"), ""))
		} else {
			errs = append(errs, placement.TaintEffect(at.Child("effect"), t.Effect)...)
		}
		key := [2]string{t.Key, string(t.Effect)}
		if seen.Has(key) {
			twice := field.Duplicate(at, shown(t))
			twice.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, twice)
		}
		seen.Insert(key)
	}
	return errs
}

// shown is how error texts spell a taint: under its Go names.
func shown(t corev1.Taint) any {
	return struct {
		Key, Value string
		Effect     corev1.TaintEffect
		TimeAdded  *metav1.Time
	}{t.Key, t.Value, t.Effect, t.TimeAdded}
}

func validateResources(n *corev1.Node) field.ErrorList {
	var errs field.ErrorList
	for _, l := range []struct {
		name string
		list corev1.ResourceList
	}{{"capacity", n.Status.Capacity}, {"allocatable", n.Status.Allocatable}} {
		for name, amount := range enough.Entries(l.list, &errs) {
			errs = append(errs, podspec.Amount(field.NewPath("status", l.name, string(name)), name, amount)...)
		}
	}
	return errs
}

func validateCIDRs(cidrs []string) field.ErrorList {
	var errs field.ErrorList
	for i, c := range enough.Each(cidrs, &errs) {
		errs = append(errs, utilvalidation.IsValidCIDRForLegacyField(cidrsPath.Index(i), c, true, nil)...)
	}
	if len(cidrs) < 2 {
		return errs
	}
	both, err := netutils.IsDualStackCIDRStrings(cidrs)
	if err != nil {
		errs = append(errs, field.InternalError(
			cidrsPath, fmt.Errorf("invalid PodCIDRs. failed to check with dual stack with error:%w", err),
		))
	}
	if !both || len(cidrs) > 2 {
		errs = append(errs, field.Invalid(cidrsPath, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

func warnings(n *corev1.Node) []string {
	var w []string
	if n.Spec.ConfigSource != nil { //nolint:staticcheck // Whoever still sets it is told.
		w = append(w, "spec.configSource: the feature is no longer supported")
	}
	if n.Spec.DoNotUseExternalID != "" {
		w = append(w, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, c := range n.Spec.PodCIDRs {
		w = append(w, utilvalidation.GetWarningsForCIDR(cidrsPath.Index(i), c)...)
	}
	return w
}
