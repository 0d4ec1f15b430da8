// Package service describes the kind Service of core/v1, and gives out the
// addresses and node ports of Services.
package service

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

// Definition returns the kind.
func Definition() resource.Definition {
	return resource.Of[corev1.Service, corev1.ServiceList](resource.Kind{
		GroupVersion: corev1.SchemeGroupVersion, Kind: "Service",
		Plural: "services", Singular: "service", ShortNames: []string{"svc"}, Categories: []string{"all"},
	}, resource.Rules[corev1.Service]{
		Default:          SetDefaults,
		ValidateName:     validation.NameIsDNSLabel,
		Status:           func(s *corev1.Service) any { return &s.Status },
		PrepareForCreate: func(_ context.Context, s *corev1.Service) { listClusterIP(s, &corev1.Service{}) },
		PrepareForUpdate: func(_ context.Context, s, old *corev1.Service) {
			dropOutdated(s, old)
			listClusterIP(s, old)
		},
		Validate: func(_ context.Context, s *corev1.Service) field.ErrorList { return Validate(s) },
		ValidateUpdate: func(_ context.Context, s, old *corev1.Service) field.ErrorList {
			return ValidateUpdate(s, old)
		},
		PrepareStatusForUpdate: func(_ context.Context, s, old *corev1.Service) { s.Spec = old.Spec },
		WarningsOnCreate:       func(_ context.Context, s *corev1.Service) []string { return warnings(s) },
		WarningsOnUpdate:       func(_ context.Context, s, _ *corev1.Service) []string { return warnings(s) },
		AllowCreateOnUpdate:    true,
		Fields: func(s *corev1.Service) fields.Set {
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		},
		FieldLabels: []string{"spec.clusterIP", "spec.type"},
		Table:       printer,
	})
}

// SetDefaults fills in what a Service leaves out.
func SetDefaults(s *corev1.Service) {
	setAffinityDefaults(&s.Spec)
	if s.Spec.Type == "" {
		s.Spec.Type = corev1.ServiceTypeClusterIP
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if p.Protocol == "" {
			p.Protocol = corev1.ProtocolTCP
		}
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if reachableFromOutside(s) && s.Spec.ExternalTrafficPolicy == "" {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if s.Spec.InternalTrafficPolicy == nil && hasInternalPolicy(s) {
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		setLoadBalancerDefaults(s)
	}
}

// setAffinityDefaults settles for how long a client stays with one endpoint, if it does.
func setAffinityDefaults(spec *corev1.ServiceSpec) {
	if spec.SessionAffinity == "" {
		spec.SessionAffinity = corev1.ServiceAffinityNone
	}
	switch spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if c := spec.SessionAffinityConfig; c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
			}
		}
	}
}

func setLoadBalancerDefaults(s *corev1.Service) {
	if s.Spec.AllocateLoadBalancerNodePorts == nil {
		s.Spec.AllocateLoadBalancerNodePorts = ptr.To(true)
	}
	for i := range s.Status.LoadBalancer.Ingress {
		if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" && in.IPMode == nil {
			in.IPMode = ptr.To(corev1.LoadBalancerIPModeVIP)
		}
	}
}

// reachableFromOutside says whether clients outside the cluster can use the Service.
func reachableFromOutside(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeNodePort:
		return true
	case corev1.ServiceTypeClusterIP:
		return len(s.Spec.ExternalIPs) > 0
	}
	return false
}

func hasInternalPolicy(s *corev1.Service) bool {
	switch s.Spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	}
	return false
}

// listClusterIP repeats the one address in the list of addresses. Who changes the address
// and leaves the list means both.
func listClusterIP(s, old *corev1.Service) {
	spec := &s.Spec
	switch {
	case spec.ClusterIP == "":
	case len(spec.ClusterIPs) == 0:
		spec.ClusterIPs = []string{spec.ClusterIP}
	case spec.ClusterIP != old.Spec.ClusterIP && slices.Equal(spec.ClusterIPs, old.Spec.ClusterIPs):
		spec.ClusterIPs = slices.Clone(spec.ClusterIPs)
		spec.ClusterIPs[0] = spec.ClusterIP
	}
}
