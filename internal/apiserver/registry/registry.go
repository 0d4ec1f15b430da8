// Package registry is the list of the API kinds that are served, and the
// behaviour that goes beyond storing them: binding, eviction, logs, and so on.
package registry

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/apiserver/registry/configmap"
	"github.com/everynode/everynode/internal/apiserver/registry/controllerrevision"
	"github.com/everynode/everynode/internal/apiserver/registry/daemonset"
	"github.com/everynode/everynode/internal/apiserver/registry/deployment"
	"github.com/everynode/everynode/internal/apiserver/registry/endpoints"
	"github.com/everynode/everynode/internal/apiserver/registry/endpointslice"
	"github.com/everynode/everynode/internal/apiserver/registry/event"
	"github.com/everynode/everynode/internal/apiserver/registry/lease"
	"github.com/everynode/everynode/internal/apiserver/registry/namespace"
	"github.com/everynode/everynode/internal/apiserver/registry/node"
	"github.com/everynode/everynode/internal/apiserver/registry/pod"
	"github.com/everynode/everynode/internal/apiserver/registry/poddisruptionbudget"
	"github.com/everynode/everynode/internal/apiserver/registry/priorityclass"
	"github.com/everynode/everynode/internal/apiserver/registry/rbac"
	"github.com/everynode/everynode/internal/apiserver/registry/replicaset"
	"github.com/everynode/everynode/internal/apiserver/registry/secret"
	"github.com/everynode/everynode/internal/apiserver/registry/serviceaccount"
	"github.com/everynode/everynode/internal/apiserver/resource"
)

var core = corev1.SchemeGroupVersion

// Kinds lists every served kind.
func Kinds() []resource.Definition {
	return append(storedKinds(), rbac.Definitions()...)
}

func storedKinds() []resource.Definition {
	adm := admissionregistrationv1.SchemeGroupVersion
	return []resource.Definition{
		pod.Definition(),
		node.Definition(),
		namespace.Definition(),
		resource.Of[corev1.Service, corev1.ServiceList](resource.Kind{GroupVersion: core, Kind: "Service", Plural: "services", Singular: "service", ShortNames: []string{"svc"}, Categories: []string{"all"}},
			resource.Rules[corev1.Service]{Status: func(p *corev1.Service) any { return &p.Status }}),
		endpoints.Definition(),
		configmap.Definition(),
		secret.Definition(),
		serviceaccount.Definition(),
		event.Definition(),
		daemonset.Definition(),
		controllerrevision.Definition(),
		deployment.Definition(),
		replicaset.Definition(),
		endpointslice.Definition(),
		lease.Definition(),
		priorityclass.Definition(),
		poddisruptionbudget.Definition(),
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
