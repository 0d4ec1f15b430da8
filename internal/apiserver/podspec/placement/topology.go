package placement

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

const notPositive = "must be greater than zero"

// TopologySpread checks how pods are to be spread.
func TopologySpread(constraints []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	type key struct {
		topologyKey string
		otherwise   corev1.UnsatisfiableConstraintAction
	}
	last := map[key]int{}
	for i, c := range constraints {
		last[key{c.TopologyKey, c.WhenUnsatisfiable}] = i
	}
	for i, c := range enough.Each(constraints, &errs) {
		at := path.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, notPositive))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "can not be empty"))
		}
		errs = append(errs, check.Supported(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, corev1.DoNotSchedule,
			corev1.ScheduleAnyway)...)
		if last[key{c.TopologyKey, c.WhenUnsatisfiable}] > i {
			errs = append(errs, field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"),
				fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)))
		}
		errs = append(errs, minDomains(&c, at.Child("minDomains"))...)
		errs = append(errs, nodePolicy(c.NodeAffinityPolicy, at.Child("nodeAffinityPolicy"))...)
		errs = append(errs, nodePolicy(c.NodeTaintsPolicy, at.Child("nodeTaintsPolicy"))...)
		errs = append(errs, labelKeys(c.MatchLabelKeys, c.LabelSelector, at.Child("matchLabelKeys"))...)
		errs = append(errs, selector(c.LabelSelector, at.Child("labelSelector"))...)
	}
	return errs
}

func minDomains(c *corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	if c.MinDomains == nil {
		return nil
	}
	var errs field.ErrorList
	if *c.MinDomains <= 0 {
		errs = append(errs, field.Invalid(path, c.MinDomains, notPositive))
	}
	if c.WhenUnsatisfiable != corev1.DoNotSchedule {
		errs = append(errs, field.Invalid(path, c.MinDomains,
			fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable)))
	}
	return errs
}

func nodePolicy(p *corev1.NodeInclusionPolicy, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	return check.Supported(path, *p, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
}
