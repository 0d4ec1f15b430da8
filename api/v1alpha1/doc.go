// Package v1alpha1 holds Everynode's own kinds. They stand beside DaemonSets and say how their changes travel, in
// which order new nodes start them, and how their pods differ from node to node; the DaemonSets themselves stay as
// their authors wrote them.
//
// +k8s:deepcopy-gen=package
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.everynode.v1alpha1
// +groupName=everynode.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the name under which the kinds are served.
var GroupVersion = schema.GroupVersion{Group: "everynode.io", Version: "v1alpha1"}

// Schema is how much a program knows of the kinds. It is raised whenever a field or a value is added, at least once for
// each version of the program: of two programs the one with the greater number knows all that the other one does.
const Schema = 1

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &RolloutPolicy{}, &RolloutPolicyList{}, &DaemonSetRollout{}, &DaemonSetRolloutList{},
		&NodeStartup{}, &NodeStartupList{}, &DaemonSetVariant{}, &DaemonSetVariantList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
