package placement

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

// Tolerations checks the taints a pod says it can live with.
func Tolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range enough.Each(tolerations, &errs) {
		at := path.Index(i)
		operator, effect := at.Child("operator"), at.Child("effect")
		if t.Key != "" {
			errs = append(errs, check.LabelName(at.Child("key"), t.Key)...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(operator, t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(effect, t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		switch t.Operator {
		case corev1.TolerationOpEqual, "":
			if messages := utilvalidation.IsValidLabelValue(t.Value); len(messages) > 0 {
				errs = append(errs, field.Invalid(operator, t.Value, strings.Join(messages, ";")))
			}
		case corev1.TolerationOpExists:
			if t.Value != "" {
				errs = append(errs, field.Invalid(operator, shownToleration(t), "value must be empty when `operator` is 'Exists'"))
			}
		default:
			errs = append(errs, check.Supported(operator, t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)...)
		}
		if t.Effect != "" {
			errs = append(errs, TaintEffect(effect, t.Effect)...)
		}
	}
	return errs
}

// shownToleration is how error texts spell a toleration: under its Go names.
func shownToleration(t corev1.Toleration) any {
	return struct {
		Key               string
		Operator          corev1.TolerationOperator
		Value             string
		Effect            corev1.TaintEffect
		TolerationSeconds *int64
	}{t.Key, t.Operator, t.Value, t.Effect, t.TolerationSeconds}
}

// TaintEffect checks what a taint does to pods.
func TaintEffect(path *field.Path, effect corev1.TaintEffect) field.ErrorList {
	return check.Supported(path, effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
		corev1.TaintEffectNoExecute)
}
