package bootstrap

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// API groups, as rules name them.
const (
	groupCore           = ""
	groupApps           = "apps"
	groupAuthentication = "authentication.k8s.io"
	groupAuthorization  = "authorization.k8s.io"
	groupAutoscaling    = "autoscaling"
	groupBatch          = "batch"
	groupCertificates   = "certificates.k8s.io"
	groupCoordination   = "coordination.k8s.io"
	groupDiscovery      = "discovery.k8s.io"
	groupEvents         = "events.k8s.io"
	groupEverynode      = "everynode.io"
	groupNetworking     = "networking.k8s.io"
	groupPolicy         = "policy"
	groupRBAC           = "rbac.authorization.k8s.io"
	groupResource       = "resource.k8s.io"
	groupScheduling     = "scheduling.k8s.io"
	groupStorage        = "storage.k8s.io"
)

// verbs are those of a rule.
type verbs []string

var (
	get   = verbs{"get"}
	read  = verbs{"get", "list", "watch"}
	write = verbs{"create", "update", "patch", "delete", "deletecollection"}
	all   = verbs{"*"}
)

// on makes a rule about resources of one group.
func (v verbs) on(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: v, APIGroups: []string{group}, Resources: resources}
}

// signers makes a rule about those of that name that sign certificates.
func (v verbs) signers(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		Verbs:         v,
		APIGroups:     []string{groupCertificates},
		Resources:     []string{"signers"},
		ResourceNames: names,
	}
}

// at makes a rule about paths that are not resources.
func (v verbs) at(paths ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: v, NonResourceURLs: paths}
}

// may joins verbs.
func may(names ...string) verbs { return names }

func recordEvents() rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		Verbs:     may("create", "patch", "update"),
		APIGroups: []string{groupCore, groupEvents},
		Resources: []string{"events"},
	}
}

const bootstrappingLabel = "kubernetes.io/bootstrapping"

func bootstrapMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        name,
		Labels:      map[string]string{bootstrappingLabel: "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) rbacv1.ClusterRole {
	return rbacv1.ClusterRole{ObjectMeta: bootstrapMeta("", name), Rules: rules}
}

// aggregated makes a role that collects the rules of all roles with a label.
func aggregated(name, label string) rbacv1.ClusterRole {
	role := clusterRole(name)
	role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
		{MatchLabels: map[string]string{label: "true"}},
	}}
	return role
}

func labelled(role rbacv1.ClusterRole, labels ...string) rbacv1.ClusterRole {
	for _, label := range labels {
		role.Labels[label] = "true"
	}
	return role
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: name}
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}
}

func clusterBinding(name, role string, subjects ...rbacv1.Subject) rbacv1.ClusterRoleBinding {
	return rbacv1.ClusterRoleBinding{
		ObjectMeta: bootstrapMeta("", name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subjects,
	}
}
