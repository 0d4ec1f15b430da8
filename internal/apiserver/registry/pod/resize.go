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

// Resize is pods/resize: how much CPU and memory the containers of a pod that runs may use.
func Resize() resource.Part {
	return resource.Part{
		Keep: func(obj, old runtime.Object) { keepAllButResources(obj.(*corev1.Pod), old.(*corev1.Pod)) },
		Validate: func(obj, old runtime.Object) field.ErrorList {
			return validateResize(obj.(*corev1.Pod), old.(*corev1.Pod))
		},
		Fields: fieldpath.NewIncludeMatcherFilter(
			fieldpath.MakePrefixMatcherOrDie("spec", "containers", fieldpath.MatchAnyPathElement(), "resources"),
			fieldpath.MakePrefixMatcherOrDie("spec", "containers", fieldpath.MatchAnyPathElement(), "resizePolicy"),
			fieldpath.MakePrefixMatcherOrDie("spec", "initContainers", fieldpath.MatchAnyPathElement(), "resources"),
			fieldpath.MakePrefixMatcherOrDie("spec", "initContainers", fieldpath.MatchAnyPathElement(), "resizePolicy"),
		),
	}
}

// keepAllButResources takes all but the containers' resources from the old pod. Containers that are others than they
// were stay for validation to refuse.
func keepAllButResources(p, old *corev1.Pod) {
	if len(p.Spec.Containers) != len(old.Spec.Containers) || len(p.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return
	}
	containers, inits := withResources(old.Spec.Containers, p.Spec.Containers), withResources(
		old.Spec.InitContainers, p.Spec.InitContainers,
	)
	p.Spec = old.Spec
	p.Spec.Containers, p.Spec.InitContainers = containers, inits
}

func withResources(old, now []corev1.Container) []corev1.Container {
	out := append(old[:0:0], old...)
	for i := range now {
		if out[i].Name != now[i].Name {
			return now
		}
		out[i].Resources, out[i].ResizePolicy = now[i].Resources, now[i].ResizePolicy
	}
	return out
}

// validateResize lets the CPU and memory of containers and sidecars change, in a pod whose node says what they have.
func validateResize(p, old *corev1.Pod) field.ErrorList {
	if podfacts.IsMirror(old) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	}
	if old.Spec.OS != nil && old.Spec.OS.Name == corev1.Windows {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	errs := podspec.ValidateAnnotations(p.Annotations, &p.Spec, annotationsPath)
	errs = append(errs, podspec.ValidatePod(&p.Spec, specPath)...)
	was := old.Status.QOSClass
	if was == "" {
		was = podfacts.QOS(old)
	}
	if was != podfacts.QOS(p) {
		errs = append(errs, field.Invalid(
			specPath, p.Status.QOSClass, "Pod QOS Class may not change as a result of resizing",
		))
	}
	for _, s := range enough.Each(old.Status.ContainerStatuses, &errs) {
		if s.State.Running != nil && s.Resources == nil {
			errs = append(errs, field.Forbidden(specPath, "Pod running on node without support for resize"))
			break
		}
	}
	if others := otherContainers(p, old); len(others) > 0 {
		return append(errs, others...)
	}
	without := *p.Spec.DeepCopy()
	errs = append(errs, onlyComputeChanges(without.Containers, old.Spec.Containers, specPath.Child("containers"))...)
	errs = append(errs, onlyComputeChanges(
		without.InitContainers, old.Spec.InitContainers, specPath.Child("initContainers"),
	)...)
	if !alike.Values(without, old.Spec) {
		errs = append(errs, field.Forbidden(
			specPath,
			fmt.Sprintf("pod resize may not change fields other than cpu and memory\n%v", diff.Diff(old.Spec, without)),
		))
	}
	return errs
}

// otherContainers refuses containers that are others than they were, or in another order.
func otherContainers(p, old *corev1.Pod) field.ErrorList {
	var errs field.ErrorList
	for _, l := range []struct {
		name     string
		now, was []corev1.Container
	}{
		{"containers", p.Spec.Containers, old.Spec.Containers},
		{"initContainers", p.Spec.InitContainers, old.Spec.InitContainers},
	} {
		path := specPath.Child(l.name)
		if len(l.now) != len(l.was) {
			errs = append(errs, field.Forbidden(path, l.name+" may not be added or removed on resize"))
			continue
		}
		for i := range enough.Each(l.now, &errs) {
			if l.now[i].Name != l.was[i].Name {
				errs = append(errs, field.Forbidden(
					path.Index(i).Child("name"), l.name+" may not be renamed or reordered on resize",
				))
			}
		}
	}
	return errs
}

// onlyComputeChanges refuses whatever else than more or less CPU and memory is asked for, and gives the containers what
// they had.
func onlyComputeChanges(now, was []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range enough.Each(now, &errs) {
		at, inits := path.Index(i).Child("resources"), path.String() == "spec.initContainers"
		if inits && !podfacts.IsSidecar(&was[i]) {
			if !alike.Values(now[i].Resources, was[i].Resources) {
				errs = append(errs, field.Forbidden(at, "resources for non-sidecar init containers are immutable"))
				now[i].Resources = was[i].Resources
			}
			continue
		}
		if removed(was[i].Resources.Requests, now[i].Resources.Requests) {
			errs = append(errs, field.Forbidden(at, "resource requests cannot be removed"))
		}
		if removed(was[i].Resources.Limits, now[i].Resources.Limits) {
			errs = append(errs, field.Forbidden(at, "resource limits cannot be removed"))
		}
		now[i].Resources.Requests = podfacts.WithCompute(now[i].Resources.Requests, was[i].Resources.Requests)
		now[i].Resources.Limits = podfacts.WithCompute(now[i].Resources.Limits, was[i].Resources.Limits)
		if !alike.Values(now[i], was[i]) {
			errs = append(errs, field.Forbidden(specPath, "only cpu and memory resources are mutable"))
			now[i] = was[i]
		}
	}
	return errs
}

func removed(was, now corev1.ResourceList) bool {
	for name := range was {
		if _, ok := now[name]; !ok {
			return true
		}
	}
	return false
}
