package networking

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/table"
)

// notKept is what whoever makes a policy should know.
const notKept = "the pod network of Everynode keeps no network policies; without a network daemon that does, all " +
	"pods reach each other as before"

func networkPolicy() resource.Definition {
	return resource.Of[networkingv1.NetworkPolicy, networkingv1.NetworkPolicyList](resource.Kind{
		GroupVersion: networkingv1.SchemeGroupVersion, Kind: "NetworkPolicy", Plural: "networkpolicies",
		Singular: "networkpolicy", ShortNames: []string{"netpol"},
	}, resource.Rules[networkingv1.NetworkPolicy]{
		Default:          SetPolicyDefaults,
		Spec:             func(p *networkingv1.NetworkPolicy) any { return &p.Spec },
		Validate:         func(_ context.Context, p *networkingv1.NetworkPolicy) field.ErrorList { return ValidatePolicy(p) },
		WarningsOnCreate: func(context.Context, *networkingv1.NetworkPolicy) []string { return []string{notKept} },
		WarningsOnUpdate: func(_ context.Context, p, old *networkingv1.NetworkPolicy) []string {
			if p.Generation == old.Generation {
				return nil
			}
			return []string{notKept}
		},
		Table: table.Of(func(p *networkingv1.NetworkPolicy, now time.Time) []any {
			return []any{p.Name, metav1.FormatLabelSelector(&p.Spec.PodSelector), table.Since(p.CreationTimestamp, now)}
		}, table.Name, table.Column{Name: "Pod-Selector", Description: "Which pods the policy is about."}, table.Age),
	})
}

// SetPolicyDefaults fills in what a policy leaves out.
func SetPolicyDefaults(p *networkingv1.NetworkPolicy) {
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
	standard := func(ports []networkingv1.NetworkPolicyPort) {
		for i := range ports {
			if ports[i].Protocol == nil {
				ports[i].Protocol = ptr.To(corev1.ProtocolTCP)
			}
		}
	}
	for i := range p.Spec.Ingress {
		standard(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		standard(p.Spec.Egress[i].Ports)
	}
}

// ValidatePolicy checks a policy, metadata aside.
func ValidatePolicy(p *networkingv1.NetworkPolicy) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateSelector(&p.Spec.PodSelector, path.Child("podSelector"))
	for i, rule := range enough.Each(p.Spec.Ingress, &errs) {
		errs = append(errs, validateRules(rule.Ports, rule.From, path.Child("ingress").Index(i), "from")...)
	}
	for i, rule := range enough.Each(p.Spec.Egress, &errs) {
		errs = append(errs, validateRules(rule.Ports, rule.To, path.Child("egress").Index(i), "to")...)
	}
	known := []networkingv1.PolicyType{networkingv1.PolicyTypeEgress, networkingv1.PolicyTypeIngress}
	at := path.Child("policyTypes")
	if len(p.Spec.PolicyTypes) > len(known) {
		return append(errs, field.Invalid(at, p.Spec.PolicyTypes, "may not specify more than two policyTypes"))
	}
	for i, t := range enough.Each(p.Spec.PolicyTypes, &errs) {
		if !slices.Contains(known, t) {
			errs = append(errs, field.NotSupported(at.Index(i), t, known))
		}
	}
	return errs
}

func validateSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	return enough.LabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, at)
}

func validateRules(
	ports []networkingv1.NetworkPolicyPort, peers []networkingv1.NetworkPolicyPeer, path *field.Path, of string,
) field.ErrorList {
	var errs field.ErrorList
	for i := range enough.Each(ports, &errs) {
		errs = append(errs, validatePort(&ports[i], path.Child("ports").Index(i))...)
	}
	for i := range enough.Each(peers, &errs) {
		errs = append(errs, validatePeer(&peers[i], path.Child(of).Index(i))...)
	}
	return errs
}

func validatePort(p *networkingv1.NetworkPolicyPort, path *field.Path) field.ErrorList {
	errs := validateProtocol(p.Protocol, path.Child("protocol"))
	at, end := path.Child("port"), path.Child("endPort")
	switch {
	case p.Port == nil:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is not specified"))
		}
	case p.Port.Type == intstr.Int:
		errs = append(errs, invalid(at, p.Port.IntVal, utilvalidation.IsValidPortNum(int(p.Port.IntVal)))...)
		if p.EndPort != nil {
			if *p.EndPort < p.Port.IntVal {
				errs = append(errs, field.Invalid(end, p.Port.IntVal, "must be greater than or equal to `port`"))
			}
			errs = append(errs, invalid(end, *p.EndPort, utilvalidation.IsValidPortNum(int(*p.EndPort)))...)
		}
	default:
		if p.EndPort != nil {
			errs = append(errs, field.Invalid(end, *p.EndPort, "may not be specified when `port` is non-numeric"))
		}
		errs = append(errs, invalid(at, p.Port.StrVal, utilvalidation.IsValidPortName(p.Port.StrVal))...)
	}
	return errs
}

func validatePeer(p *networkingv1.NetworkPolicyPeer, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.PodSelector != nil {
		errs = append(errs, validateSelector(p.PodSelector, path.Child("podSelector"))...)
	}
	if p.NamespaceSelector != nil {
		errs = append(errs, validateSelector(p.NamespaceSelector, path.Child("namespaceSelector"))...)
	}
	selects := p.PodSelector != nil || p.NamespaceSelector != nil
	if p.IPBlock != nil {
		errs = append(errs, validateBlock(p.IPBlock, path.Child("ipBlock"))...)
		if selects {
			errs = append(errs, field.Forbidden(path, "may not specify both ipBlock and another peer"))
		}
	} else if !selects {
		errs = append(errs, field.Required(path, "must specify a peer"))
	}
	return errs
}

func validateBlock(b *networkingv1.IPBlock, path *field.Path) field.ErrorList {
	at := path.Child("cidr")
	if b.CIDR == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	errs := utilvalidation.IsValidCIDRForLegacyField(at, b.CIDR, true, nil)
	if len(errs) > 0 {
		return errs
	}
	whole, err := netip.ParsePrefix(b.CIDR)
	for i, text := range enough.Each(b.Except, &errs) {
		at := path.Child("except").Index(i)
		if bad := utilvalidation.IsValidCIDRForLegacyField(at, text, true, nil); len(bad) > 0 {
			errs = append(errs, bad...)
			continue
		}
		part, partErr := netip.ParsePrefix(text)
		if err == nil && partErr == nil && (!whole.Contains(part.Addr()) || part.Bits() <= whole.Bits()) {
			errs = append(errs, field.Invalid(at, text, "must be a strict subset of `cidr`"))
		}
	}
	return errs
}
