package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateAnnotations checks the annotations of a pod or template that mean
// something to the API: the image of a node's own pod must name that node.
func ValidateAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if value, ok := annotations[corev1.MirrorPodAnnotationKey]; ok && spec.NodeName == "" {
		return field.ErrorList{field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), value, "must set spec.nodeName if mirror pod annotation is set")}
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

// retiredAnnotations do nothing any more; a field took the place of each.
var retiredAnnotations = []struct{ key, why string }{
	{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
	{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
}

const (
	seccompWhy  = `non-functional in v1.27+; use the "seccompProfile" field instead`
	appArmorWhy = `deprecated since v1.30; use the "appArmorProfile" field instead`
)

// annotation says why, if the annotation is there.
func (n warner) annotation(key, why string) []string {
	if _, ok := n.annotations[key]; !ok {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s", n.annotationsPath.Key(key), why)}
}

func (n warner) oldAnnotations() []string {
	var w []string
	for _, a := range retiredAnnotations {
		w = append(w, n.annotation(a.key, a.why)...)
	}
	return w
}

func (n warner) podSeccomp() []string {
	if c := n.spec.SecurityContext; c != nil && c.SeccompProfile != nil {
		return nil
	}
	return n.annotation(corev1.SeccompPodAnnotationKey, seccompWhy)
}

func (n warner) containerSeccomp(c *corev1.Container) []string {
	if s := c.SecurityContext; s != nil && s.SeccompProfile != nil {
		return nil
	}
	return n.annotation(corev1.SeccompContainerAnnotationKeyPrefix+c.Name, seccompWhy)
}

// appArmor speaks of templates only: in a pod the annotation becomes the field.
func (n warner) appArmor(c *corev1.Container) []string {
	if s := n.spec.SecurityContext; s != nil && s.AppArmorProfile != nil {
		return nil
	}
	if s := c.SecurityContext; s != nil && s.AppArmorProfile != nil {
		return nil
	}
	return n.annotation(corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name, appArmorWhy)
}
