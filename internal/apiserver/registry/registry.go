// Package registry is the list of the API kinds that are served, and the
// behaviour that goes beyond storing them: binding, eviction, logs, and so on.
package registry

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

var core, apps = corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion

// Kinds lists every served kind.
func Kinds() []resource.Definition {
	adm := admissionregistrationv1.SchemeGroupVersion
	rb := rbacv1.SchemeGroupVersion
	pathName := path.ValidatePathSegmentName
	return []resource.Definition{
		resource.Of[corev1.Pod, corev1.PodList](resource.Kind{GroupVersion: core, Kind: "Pod", Plural: "pods", Singular: "pod", ShortNames: []string{"po"}, Categories: []string{"all"}},
			resource.Rules[corev1.Pod]{Spec: func(p *corev1.Pod) any { return &p.Spec }, Status: func(p *corev1.Pod) any { return &p.Status },
				Fields:        func(p *corev1.Pod) fields.Set { return fields.Set{"spec.nodeName": p.Spec.NodeName} },
				FieldLabels:   []string{"spec.nodeName"},
				IndexedFields: []string{"spec.nodeName"}}),
		resource.Of[corev1.Node, corev1.NodeList](resource.Kind{GroupVersion: core, Kind: "Node", Plural: "nodes", Singular: "node", ShortNames: []string{"no"}, ClusterScoped: true},
			resource.Rules[corev1.Node]{Status: func(p *corev1.Node) any { return &p.Status }}),
		resource.Of[corev1.Namespace, corev1.NamespaceList](resource.Kind{GroupVersion: core, Kind: "Namespace", Plural: "namespaces", Singular: "namespace", ShortNames: []string{"ns"}, ClusterScoped: true},
			resource.Rules[corev1.Namespace]{Status: func(p *corev1.Namespace) any { return &p.Status }}),
		resource.Of[corev1.Service, corev1.ServiceList](resource.Kind{GroupVersion: core, Kind: "Service", Plural: "services", Singular: "service", ShortNames: []string{"svc"}, Categories: []string{"all"}},
			resource.Rules[corev1.Service]{Status: func(p *corev1.Service) any { return &p.Status }}),
		resource.Of[corev1.Endpoints, corev1.EndpointsList](resource.Kind{GroupVersion: core, Kind: "Endpoints", Plural: "endpoints", Singular: "endpoints", ShortNames: []string{"ep"}}, resource.Rules[corev1.Endpoints]{}),
		resource.Of[corev1.ConfigMap, corev1.ConfigMapList](resource.Kind{GroupVersion: core, Kind: "ConfigMap", Plural: "configmaps", Singular: "configmap", ShortNames: []string{"cm"}}, resource.Rules[corev1.ConfigMap]{}),
		resource.Of[corev1.Secret, corev1.SecretList](resource.Kind{GroupVersion: core, Kind: "Secret", Plural: "secrets", Singular: "secret"}, resource.Rules[corev1.Secret]{}),
		resource.Of[corev1.ServiceAccount, corev1.ServiceAccountList](resource.Kind{GroupVersion: core, Kind: "ServiceAccount", Plural: "serviceaccounts", Singular: "serviceaccount", ShortNames: []string{"sa"}}, resource.Rules[corev1.ServiceAccount]{}),
		resource.Of[corev1.Event, corev1.EventList](resource.Kind{GroupVersion: core, Kind: "Event", Plural: "events", Singular: "event", ShortNames: []string{"ev"}}, resource.Rules[corev1.Event]{TTL: func(*corev1.Event) uint64 { return 3600 }}),
		resource.Of[appsv1.DaemonSet, appsv1.DaemonSetList](resource.Kind{GroupVersion: apps, Kind: "DaemonSet", Plural: "daemonsets", Singular: "daemonset", ShortNames: []string{"ds"}, Categories: []string{"all"}},
			resource.Rules[appsv1.DaemonSet]{Spec: func(p *appsv1.DaemonSet) any { return &p.Spec }, Status: func(p *appsv1.DaemonSet) any { return &p.Status }}),
		resource.Of[appsv1.ControllerRevision, appsv1.ControllerRevisionList](resource.Kind{GroupVersion: apps, Kind: "ControllerRevision", Plural: "controllerrevisions", Singular: "controllerrevision"}, resource.Rules[appsv1.ControllerRevision]{}),
		resource.Of[appsv1.Deployment, appsv1.DeploymentList](resource.Kind{GroupVersion: apps, Kind: "Deployment", Plural: "deployments", Singular: "deployment", ShortNames: []string{"deploy"}, Categories: []string{"all"}},
			resource.Rules[appsv1.Deployment]{Spec: func(p *appsv1.Deployment) any { return &p.Spec }, Status: func(p *appsv1.Deployment) any { return &p.Status }}),
		resource.Of[appsv1.ReplicaSet, appsv1.ReplicaSetList](resource.Kind{GroupVersion: apps, Kind: "ReplicaSet", Plural: "replicasets", Singular: "replicaset", ShortNames: []string{"rs"}, Categories: []string{"all"}},
			resource.Rules[appsv1.ReplicaSet]{Spec: func(p *appsv1.ReplicaSet) any { return &p.Spec }, Status: func(p *appsv1.ReplicaSet) any { return &p.Status }}),
		resource.Of[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](resource.Kind{GroupVersion: discoveryv1.SchemeGroupVersion, Kind: "EndpointSlice", Plural: "endpointslices", Singular: "endpointslice"}, resource.Rules[discoveryv1.EndpointSlice]{}),
		resource.Of[coordinationv1.Lease, coordinationv1.LeaseList](resource.Kind{GroupVersion: coordinationv1.SchemeGroupVersion, Kind: "Lease", Plural: "leases", Singular: "lease"}, resource.Rules[coordinationv1.Lease]{AllowCreateOnUpdate: true}),
		resource.Of[schedulingv1.PriorityClass, schedulingv1.PriorityClassList](resource.Kind{GroupVersion: schedulingv1.SchemeGroupVersion, Kind: "PriorityClass", Plural: "priorityclasses", Singular: "priorityclass", ShortNames: []string{"pc"}, ClusterScoped: true}, resource.Rules[schedulingv1.PriorityClass]{}),
		resource.Of[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](resource.Kind{GroupVersion: policyv1.SchemeGroupVersion, Kind: "PodDisruptionBudget", Plural: "poddisruptionbudgets", Singular: "poddisruptionbudget", ShortNames: []string{"pdb"}},
			resource.Rules[policyv1.PodDisruptionBudget]{Spec: func(p *policyv1.PodDisruptionBudget) any { return &p.Spec }, Status: func(p *policyv1.PodDisruptionBudget) any { return &p.Status }}),
		resource.Of[rbacv1.Role, rbacv1.RoleList](resource.Kind{GroupVersion: rb, Kind: "Role", Plural: "roles", Singular: "role"}, resource.Rules[rbacv1.Role]{ValidateName: pathName}),
		resource.Of[rbacv1.RoleBinding, rbacv1.RoleBindingList](resource.Kind{GroupVersion: rb, Kind: "RoleBinding", Plural: "rolebindings", Singular: "rolebinding"}, resource.Rules[rbacv1.RoleBinding]{ValidateName: pathName}),
		resource.Of[rbacv1.ClusterRole, rbacv1.ClusterRoleList](resource.Kind{GroupVersion: rb, Kind: "ClusterRole", Plural: "clusterroles", Singular: "clusterrole", ClusterScoped: true}, resource.Rules[rbacv1.ClusterRole]{ValidateName: pathName}),
		resource.Of[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](resource.Kind{GroupVersion: rb, Kind: "ClusterRoleBinding", Plural: "clusterrolebindings", Singular: "clusterrolebinding", ClusterScoped: true}, resource.Rules[rbacv1.ClusterRoleBinding]{ValidateName: pathName}),
		resource.Of[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList](resource.Kind{GroupVersion: certificatesv1.SchemeGroupVersion, Kind: "CertificateSigningRequest", Plural: "certificatesigningrequests", Singular: "certificatesigningrequest", ShortNames: []string{"csr"}, ClusterScoped: true},
			resource.Rules[certificatesv1.CertificateSigningRequest]{Status: func(p *certificatesv1.CertificateSigningRequest) any { return &p.Status }}),
		resource.Of[admissionregistrationv1.ValidatingWebhookConfiguration, admissionregistrationv1.ValidatingWebhookConfigurationList](resource.Kind{GroupVersion: adm, Kind: "ValidatingWebhookConfiguration", Plural: "validatingwebhookconfigurations", Singular: "validatingwebhookconfiguration", ClusterScoped: true}, resource.Rules[admissionregistrationv1.ValidatingWebhookConfiguration]{}),
		resource.Of[admissionregistrationv1.MutatingWebhookConfiguration, admissionregistrationv1.MutatingWebhookConfigurationList](resource.Kind{GroupVersion: adm, Kind: "MutatingWebhookConfiguration", Plural: "mutatingwebhookconfigurations", Singular: "mutatingwebhookconfiguration", ClusterScoped: true}, resource.Rules[admissionregistrationv1.MutatingWebhookConfiguration]{}),
		resource.Of[admissionregistrationv1.ValidatingAdmissionPolicy, admissionregistrationv1.ValidatingAdmissionPolicyList](resource.Kind{GroupVersion: adm, Kind: "ValidatingAdmissionPolicy", Plural: "validatingadmissionpolicies", Singular: "validatingadmissionpolicy", ClusterScoped: true}, resource.Rules[admissionregistrationv1.ValidatingAdmissionPolicy]{}),
		resource.Of[admissionregistrationv1.ValidatingAdmissionPolicyBinding, admissionregistrationv1.ValidatingAdmissionPolicyBindingList](resource.Kind{GroupVersion: adm, Kind: "ValidatingAdmissionPolicyBinding", Plural: "validatingadmissionpolicybindings", Singular: "validatingadmissionpolicybinding", ClusterScoped: true}, resource.Rules[admissionregistrationv1.ValidatingAdmissionPolicyBinding]{}),
		resource.Of[admissionregistrationv1.MutatingAdmissionPolicy, admissionregistrationv1.MutatingAdmissionPolicyList](resource.Kind{GroupVersion: adm, Kind: "MutatingAdmissionPolicy", Plural: "mutatingadmissionpolicies", Singular: "mutatingadmissionpolicy", ClusterScoped: true}, resource.Rules[admissionregistrationv1.MutatingAdmissionPolicy]{}),
		resource.Of[admissionregistrationv1.MutatingAdmissionPolicyBinding, admissionregistrationv1.MutatingAdmissionPolicyBindingList](resource.Kind{GroupVersion: adm, Kind: "MutatingAdmissionPolicyBinding", Plural: "mutatingadmissionpolicybindings", Singular: "mutatingadmissionpolicybinding", ClusterScoped: true}, resource.Rules[admissionregistrationv1.MutatingAdmissionPolicyBinding]{}),
	}
}
