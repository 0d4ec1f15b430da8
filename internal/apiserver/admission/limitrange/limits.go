package limitrange

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Give gives containers that ask for nothing what a limit range says, and notes that at the pod.
func Give(pod *corev1.Pod, l *corev1.LimitRange) {
	given := corev1.ResourceRequirements{Limits: corev1.ResourceList{}, Requests: corev1.ResourceList{}}
	for i := range l.Spec.Limits {
		if item := &l.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
			maps.Copy(given.Requests, item.DefaultRequest)
			maps.Copy(given.Limits, item.Default)
		}
	}
	var notes []string
	for i := range pod.Spec.Containers {
		notes = append(notes, giveTo(&pod.Spec.Containers[i], given, "container")...)
	}
	for i := range pod.Spec.InitContainers {
		notes = append(notes, giveTo(&pod.Spec.InitContainers[i], given, "init container")...)
	}
	if len(notes) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotation] = "LimitRanger plugin set: " + strings.Join(notes, "; ")
}

func giveTo(c *corev1.Container, given corev1.ResourceRequirements, what string) (notes []string) {
	if names := fill(&c.Resources.Requests, given.Requests); len(names) > 0 {
		notes = append(notes, strings.Join(names, ", ")+" request for "+what+" "+c.Name)
	}
	if names := fill(&c.Resources.Limits, given.Limits); len(names) > 0 {
		notes = append(notes, strings.Join(names, ", ")+" limit for "+what+" "+c.Name)
	}
	return notes
}

// fill adds what a list has not, and returns what that was.
func fill(to *corev1.ResourceList, from corev1.ResourceList) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if _, ok := (*to)[name]; ok {
			continue
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = from[name].DeepCopy()
		names = append(names, string(name))
	}
	return names
}

// CheckPod says what a limit range has against a pod.
func CheckPod(pod *corev1.Pod, l *corev1.LimitRange) error {
	var errs []error
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		switch item.Type {
		case corev1.LimitTypeContainer:
			for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
				for j := range list {
					errs = append(errs, check(item, list[j].Resources.Requests, list[j].Resources.Limits)...)
				}
			}
		case corev1.LimitTypePod:
			options := resourcehelper.PodResourcesOptions{}
			errs = append(errs, check(item, resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options))...)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// CheckClaim says what a limit range has against a claim.
func CheckClaim(claim *corev1.PersistentVolumeClaim, l *corev1.LimitRange) error {
	var errs []error
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(item.Min)) {
			errs = append(errs, amount{item.Type, name, claim.Spec.Resources.Requests, nil}.atLeast(item.Min[name])...)
		}
		for _, name := range slices.Sorted(maps.Keys(item.Max)) {
			errs = append(errs, amount{item.Type, name, claim.Spec.Resources.Requests, nil}.requestAtMost(item.Max[name])...)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// check holds requests and limits against an item.
func check(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) (errs []error) {
	of := func(name corev1.ResourceName) amount { return amount{item.Type, name, requests, limits} }
	for _, name := range slices.Sorted(maps.Keys(item.Min)) {
		errs = append(errs, of(name).atLeast(item.Min[name])...)
	}
	for _, name := range slices.Sorted(maps.Keys(item.Max)) {
		errs = append(errs, of(name).atMost(item.Max[name])...)
	}
	for _, name := range slices.Sorted(maps.Keys(item.MaxLimitRequestRatio)) {
		errs = append(errs, of(name).ratioAtMost(item.MaxLimitRequestRatio[name])...)
	}
	return errs
}

// amount is how much of a resource something asks for and may use.
type amount struct {
	of               corev1.LimitType
	name             corev1.ResourceName
	requests, limits corev1.ResourceList
}

func (a amount) refuse(most string, bound resource.Quantity, format string, args ...any) []error {
	return []error{fmt.Errorf("%s per %s is %s%s", fmt.Sprintf(most, a.name), a.of, bound.String(),
		fmt.Sprintf(format, args...))}
}

func (a amount) atLeast(bound resource.Quantity) []error {
	const least = "minimum %s usage"
	request, asked := a.requests[a.name]
	limit, limited := a.limits[a.name]
	switch {
	case !asked:
		return a.refuse(least, bound, ".  No request is specified")
	case request.Cmp(bound) < 0:
		return a.refuse(least, bound, ", but request is %s", request.String())
	case limited && limit.Cmp(bound) < 0:
		return a.refuse(least, bound, ", but limit is %s", limit.String())
	}
	return nil
}

const maximum = "maximum %s usage"

func (a amount) atMost(bound resource.Quantity) []error {
	request := a.requests[a.name]
	limit, limited := a.limits[a.name]
	switch {
	case !limited:
		return a.refuse(maximum, bound, ".  No limit is specified")
	case limit.Cmp(bound) > 0:
		return a.refuse(maximum, bound, ", but limit is %s", limit.String())
	case request.Cmp(bound) > 0:
		return a.refuse(maximum, bound, ", but request is %s", request.String())
	}
	return nil
}

func (a amount) requestAtMost(bound resource.Quantity) []error {
	request, asked := a.requests[a.name]
	switch {
	case !asked:
		return a.refuse(maximum, bound, ".  No request is specified")
	case request.Cmp(bound) > 0:
		return a.refuse(maximum, bound, ", but request is %s", request.String())
	}
	return nil
}

func (a amount) ratioAtMost(bound resource.Quantity) []error {
	const most = "%s max limit to request ratio"
	request, limit := a.requests[a.name], a.limits[a.name]
	if request.IsZero() {
		return a.refuse(most, bound, ", but no request is specified or request is 0")
	}
	if limit.IsZero() {
		return a.refuse(most, bound, ", but no limit is specified or limit is 0")
	}
	if ratio := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); ratio > bound.AsApproximateFloat64() {
		return a.refuse(most, bound, ", but provided ratio is %f", ratio)
	}
	return nil
}
