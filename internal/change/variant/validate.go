package variant

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/variant/formula"
)

// The most that a DaemonSetVariant may have of each.
const (
	MaxTerms      = 20 // of a selector
	MaxValues     = 100
	MaxContainers = 20
	// MaxVariants is how many variants a DaemonSet may have.
	MaxVariants = 20
)

// computable are the resources for which there are formulas: those that every node has and a pod can be given more of.
var computable = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// Validate checks a DaemonSetVariant.
func Validate(v *v1alpha1.DaemonSetVariant) field.ErrorList {
	at := field.NewPath("spec")
	errs := validateSelector(v.Spec.DaemonSets, at.Child("daemonSets"))
	errs = append(errs, validateSelector(v.Spec.Nodes, at.Child("nodes"))...)
	if v.Spec.Patch != nil {
		at := at.Child("patch")
		if err := checkPatch(v.Spec.Patch.Raw); err != nil {
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, err.Error()))
		}
	}
	return append(errs, validateResources(v.Spec.Resources, at.Child("resources"))...)
}

// Check says why a DaemonSetVariant is not to be used; nil if it is.
func Check(v *v1alpha1.DaemonSetVariant) error {
	if err := newer.Check(v); err != nil {
		return err
	}
	return Validate(v).ToAggregate()
}

func validateResources(all map[string]v1alpha1.VariantResources, at *field.Path) (errs field.ErrorList) {
	if n := len(all); n > MaxContainers {
		return field.ErrorList{field.TooMany(at, n, MaxContainers)}
	}
	for _, container := range slices.Sorted(maps.Keys(all)) {
		at := at.Key(container)
		for _, problem := range validation.IsDNS1123Label(container) {
			errs = append(errs, field.Invalid(at, container, "must be the name of a container: "+problem))
		}
		errs = append(errs, validateFormulas(all[container].Requests, at.Child("requests"))...)
		errs = append(errs, validateFormulas(all[container].Limits, at.Child("limits"))...)
	}
	return errs
}

func validateFormulas(of map[corev1.ResourceName]string, at *field.Path) (errs field.ErrorList) {
	if n := len(of); n > len(computable) {
		return field.ErrorList{field.TooMany(at, n, len(computable))}
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		if !slices.Contains(computable, name) {
			errs = append(errs, field.NotSupported(at.Key(string(name)), name, computable))
			continue
		}
		if _, err := formula.Compile(of[name]); err != nil {
			errs = append(errs, field.Invalid(at.Key(string(name)), field.OmitValueType{}, err.Error()))
		}
	}
	return errs
}

func validateSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	if n := len(s.MatchLabels); n > MaxTerms {
		return field.ErrorList{field.TooMany(at.Child("matchLabels"), n, MaxTerms)}
	}
	if n := len(s.MatchExpressions); n > MaxTerms {
		return field.ErrorList{field.TooMany(at.Child("matchExpressions"), n, MaxTerms)}
	}
	for i := range s.MatchExpressions {
		if n := len(s.MatchExpressions[i].Values); n > MaxValues {
			return field.ErrorList{field.TooMany(at.Child("matchExpressions").Index(i).Child("values"), n, MaxValues)}
		}
	}
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
}

// Check says what is wrong with the variants on the template, by their names: a patch that cannot be merged, or
// formulas of containers that it does not have.
func (m *Molds) Check() map[string]error {
	s, out := m.set, map[string]error{}
	for i := range s.Variants {
		is, name := m.merge(i), s.Variants[i].Name
		if is.err != nil {
			out[name] = is.err
			continue
		}
		for _, f := range s.compiled[i].formulas {
			if containerOf(&is.template.Spec, f.container) == nil {
				out[name] = fmt.Errorf("%s: the template has no container %s", f.at(), f.container)
			}
		}
	}
	return out
}

// Merged is what the variant at that place of the set makes of the template: the template itself without a patch.
func (m *Molds) Merged(i int) (*corev1.PodTemplateSpec, error) {
	is := m.merge(i)
	return is.template, is.err
}
