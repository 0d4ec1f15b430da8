package warnings

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

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
