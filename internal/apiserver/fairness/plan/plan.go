// Package plan decides what becomes of the configuration of priority and fairness that
// every cluster has.
package plan

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Step is what to do with an object.
type Step string

// The steps.
const (
	// Leave leaves it as it is.
	Leave Step = "leave"
	// Create makes it: it is missing.
	Create Step = "create"
	// Update gives it the specification of this version, and says that the cluster keeps it.
	Update Step = "update"
	// Release says that it is the user's from now on.
	Release Step = "release"
	// Delete removes it: a version before this one made it.
	Delete Step = "delete"
)

// Wanted decides about an object that this version has. Mandatory ones are always kept.
// Of the others those are kept that the user has not changed; the annotation says which,
// and where there is none, whether the specification was ever changed. current is nil
// when there is none; same says whether its specification is this version's.
func Wanted(current metav1.Object, mandatory, same bool) Step {
	if current == nil {
		return Create
	}
	marked, ok := current.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]
	keep := mandatory || ok && marked == "true" || !ok && current.GetGeneration() == 1
	switch {
	case keep && (!same || marked != "true"):
		return Update
	case !keep && !ok:
		return Release
	}
	return Leave
}

// Unwanted decides about an object that this version does not have.
func Unwanted(current metav1.Object) Step {
	if current.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey] == "true" {
		return Delete
	}
	return Leave
}
