package bootstrap

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Priority classes of the cluster's own daemons and add-ons.
const (
	NodeCriticalClass    = "system-node-critical"
	ClusterCriticalClass = "system-cluster-critical"
)

// Namespaces lists the namespaces that always exist.
func Namespaces() []string {
	return []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}
}

// PriorityClasses lists the classes that always exist.
func PriorityClasses() []schedulingv1.PriorityClass {
	class := func(name string, value int32, description string) schedulingv1.PriorityClass {
		return schedulingv1.PriorityClass{
			ObjectMeta:  metav1.ObjectMeta{Name: name},
			Value:       value,
			Description: description,
		}
	}
	return []schedulingv1.PriorityClass{
		class(
			NodeCriticalClass, 2_000_001_000, "Used for system critical pods that must not be moved from their current node.",
		),
		class(
			ClusterCriticalClass, 2_000_000_000,
			"Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		),
	}
}
