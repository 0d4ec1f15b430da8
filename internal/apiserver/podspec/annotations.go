package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateAnnotations checks the annotations of a pod or template that mean
// something to the API: the image of a node's own pod must name that node.
func ValidateAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if value, ok := annotations[corev1.MirrorPodAnnotationKey]; ok && spec.NodeName == "" {
		return field.ErrorList{field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), value,
			"must set spec.nodeName if mirror pod annotation is set")}
	}
	return nil
}

// ValidateAnnotationsUpdate refuses to make an ordinary pod a node's own, or
// the other way round.
func ValidateAnnotationsUpdate(now, was map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	const key = corev1.MirrorPodAnnotationKey
	before, wasOwn := was[key]
	after, isOwn := now[key]
	switch {
	case wasOwn && (!isOwn || after != before):
		errs = append(errs, field.Forbidden(path.Key(key), "may not remove or update mirror pod annotation"))
	case isOwn && !wasOwn:
		errs = append(errs, field.Forbidden(path.Key(key), "may not add mirror pod annotation"))
	}
	return errs
}
