// Package variantfit compares a DaemonSetVariant with the DaemonSets that it chooses when it is written: one whose
// patch makes a pod template that the API does not take is refused, and who writes one that is in conflict with
// another, or has formulas of containers that are not there, is warned.
package variantfit

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/podspec/defaults"
	"github.com/everynode/everynode/internal/apiserver/stored"
	"github.com/everynode/everynode/internal/change/variant"
)

type plugin struct {
	*admission.Handler
	stored *Stored
}

var _ admission.ValidationInterface = &plugin{}

// Stored is where DaemonSets and variants are stored. It is filled once the storages are there.
type Stored struct {
	DaemonSets, Variants rest.Lister
}

// New makes the plugin, which compares with what is stored.
func New(have *Stored) admission.ValidationInterface {
	return &plugin{Handler: admission.NewHandler(admission.Create, admission.Update), stored: have}
}

// most is how many DaemonSets, or variants, one answer names.
const most = 5

// Validate implements admission.ValidationInterface. Of what a write leaves as it was nothing is said: the template may
// have changed since.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	v, is := a.GetObject().(*v1alpha1.DaemonSetVariant)
	if !is || a.GetSubresource() != "" {
		return nil
	}
	old, _ := a.GetOldObject().(*v1alpha1.DaemonSetVariant)
	if old != nil && alike.Values(old.Spec, v.Spec) {
		return nil
	}
	sets, err := stored.List[*appsv1.DaemonSet](ctx, p.stored.DaemonSets, a.GetNamespace())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("compare DaemonSetVariant %s with DaemonSets: %w", v.Name, err))
	}
	sets = slices.DeleteFunc(sets, func(ds *appsv1.DaemonSet) bool { return !variant.Selects(v, ds) })
	if len(sets) == 0 {
		return nil
	}
	if err := fits(ctx, v, sets); err != nil {
		return err
	}
	return p.conflicts(ctx, a, v, sets)
}

// fits refuses a variant whose patch makes no pod template of a DaemonSet, and warns of formulas without a container.
func fits(ctx context.Context, v *v1alpha1.DaemonSetVariant, sets []*appsv1.DaemonSet) error {
	s, err := variant.NewSet([]variant.Variant{variant.Of(v)})
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	var errs field.ErrorList
	warned := 0
	for _, ds := range sets {
		m := s.On(&ds.Spec.Template)
		merged, err := m.Merged(0)
		about := "with the template of DaemonSet " + ds.Name + ": "
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(field.NewPath("spec", "patch"), field.OmitValueType{}, about+err.Error()))
		case merged != &ds.Spec.Template:
			errs = append(errs, invalid(merged, about)...)
		}
		for _, err := range m.Check() {
			if len(errs) == 0 && warned < most {
				warned++
				warning.AddWarning(ctx, "", "DaemonSet "+ds.Name+" keeps the pods that it has: "+err.Error())
			}
		}
		if len(errs) >= most {
			break
		}
	}
	if len(errs) == 0 {
		return nil
	}
	kind := schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "DaemonSetVariant"}
	return apierrors.NewInvalid(kind, v.Name, errs)
}

// invalid says why the API would not take the template that a patch makes.
func invalid(merged *corev1.PodTemplateSpec, about string) (errs field.ErrorList) {
	t := merged.DeepCopy()
	defaults.SetTemplate(t)
	for _, err := range podspec.ValidateTemplate(t, field.NewPath("template")) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "patch"), field.OmitValueType{}, about+err.Error()))
	}
	return errs[:min(len(errs), most)]
}

// conflicts warns of variants of the same priority that visibly choose the same nodes for the same DaemonSet.
func (p *plugin) conflicts(
	ctx context.Context, a admission.Attributes, v *v1alpha1.DaemonSetVariant, sets []*appsv1.DaemonSet,
) error {
	others, err := stored.List[*v1alpha1.DaemonSetVariant](ctx, p.stored.Variants, a.GetNamespace())
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("compare DaemonSetVariant %s with others: %w", v.Name, err))
	}
	warned := 0
	for _, o := range others {
		if o.Name == v.Name || o.Spec.Priority != v.Spec.Priority || !same(o.Spec.Nodes, v.Spec.Nodes) {
			continue
		}
		i := slices.IndexFunc(sets, func(ds *appsv1.DaemonSet) bool { return variant.Selects(o, ds) })
		if i < 0 || warned == most {
			continue
		}
		warned++
		warning.AddWarning(ctx, "", fmt.Sprintf("DaemonSetVariant %s has the same priority, %d, and chooses the same nodes "+
			"for DaemonSet %s: these keep the pods that they have", o.Name, v.Spec.Priority, sets[i].Name))
	}
	return nil
}

// same reports whether both selectors visibly choose the same nodes: all of them, or by the same words.
func same(a, b *metav1.LabelSelector) bool {
	empty := func(s *metav1.LabelSelector) bool { return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0 }
	if empty(a) || empty(b) {
		return empty(a) && empty(b)
	}
	return maps.Equal(a.MatchLabels, b.MatchLabels) && alike.Values(a.MatchExpressions, b.MatchExpressions)
}
