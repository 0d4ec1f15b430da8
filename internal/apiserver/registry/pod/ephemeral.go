package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/everynode/everynode/internal/apiserver/alike"
	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec"
	"github.com/everynode/everynode/internal/apiserver/resource"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// EphemeralContainers is pods/ephemeralcontainers: containers can be added to a pod that runs, to look into it.
func EphemeralContainers() resource.Part {
	return resource.Part{
		Keep: func(obj, old runtime.Object) {
			now, was := obj.(*corev1.Pod), old.(*corev1.Pod)
			added := now.Spec.EphemeralContainers
			now.Spec = was.Spec
			now.Spec.EphemeralContainers = added
		},
		Validate: func(obj, old runtime.Object) field.ErrorList {
			return validateEphemeralUpdate(obj.(*corev1.Pod), old.(*corev1.Pod))
		},
		Fields: fieldpath.NewIncludeMatcherFilter(fieldpath.MakePrefixMatcherOrDie("spec", "ephemeralContainers")),
	}
}

// validateEphemeralUpdate lets ephemeral containers be added, and none be changed or taken away.
func validateEphemeralUpdate(p, old *corev1.Pod) field.ErrorList {
	if podfacts.IsMirror(old) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	errs := podspec.ValidateAnnotations(p.Annotations, &p.Spec, annotationsPath)
	errs = append(errs, podspec.ValidatePod(&p.Spec, specPath)...)
	now := map[string]*corev1.EphemeralContainer{}
	for i := range p.Spec.EphemeralContainers {
		now[p.Spec.EphemeralContainers[i].Name] = &p.Spec.EphemeralContainers[i]
	}
	path := specPath.Child("ephemeralContainers")
	for _, was := range enough.Each(old.Spec.EphemeralContainers, &errs) {
		if c := now[was.Name]; c == nil {
			errs = append(errs, field.Forbidden(
				path, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name),
			))
		} else if !alike.Values(was, *c) {
			errs = append(errs, field.Forbidden(
				path, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", was.Name, diff.Diff(was, *c)),
			))
		}
	}
	return errs
}
