package networking

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
)

// invalid makes an error of each text.
func invalid(at *field.Path, value any, texts []string) (errs field.ErrorList) {
	for _, text := range texts {
		errs = append(errs, field.Invalid(at, value, text))
	}
	return errs
}

// ValidateIngress checks a new Ingress, metadata aside.
func ValidateIngress(i *networkingv1.Ingress) field.ErrorList {
	errs := validateIngressSpec(&i.Spec, field.NewPath("spec"))
	class, old := i.Annotations[classAnnotation]
	if old && i.Spec.IngressClassName != nil && class != *i.Spec.IngressClassName {
		errs = append(errs, field.Invalid(
			field.NewPath("annotations").Child(classAnnotation), class, "must match `ingressClassName` when both are specified",
		))
	}
	return errs
}

func validateIngressSpec(s *networkingv1.IngressSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.Rules) == 0 && s.DefaultBackend == nil {
		errs = append(errs, field.Invalid(path, s.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	if s.DefaultBackend != nil {
		errs = append(errs, validateBackend(s.DefaultBackend, path.Child("defaultBackend"))...)
	}
	for i := range enough.Each(s.Rules, &errs) {
		errs = append(errs, validateRule(&s.Rules[i], path.Child("rules").Index(i))...)
	}
	for i, tls := range enough.Each(s.TLS, &errs) {
		at := path.Child("tls").Index(i)
		for j, host := range enough.Each(tls.Hosts, &errs) {
			errs = append(errs, validateHost(host, at.Child("hosts").Index(j))...)
		}
		if tls.SecretName != "" {
			errs = append(errs, invalid(
				at.Child("secretName"), tls.SecretName, validation.NameIsDNSSubdomain(tls.SecretName, false),
			)...)
		}
	}
	if s.IngressClassName != nil {
		errs = append(errs, invalid(
			path.Child("ingressClassName"), *s.IngressClassName, validation.NameIsDNSSubdomain(*s.IngressClassName, false),
		)...)
	}
	return errs
}

func validateHost(host string, at *field.Path) field.ErrorList {
	if strings.Contains(host, "*") {
		return invalid(at, host, utilvalidation.IsWildcardDNS1123Subdomain(host))
	}
	return invalid(at, host, utilvalidation.IsDNS1123Subdomain(host))
}

func validateRule(r *networkingv1.IngressRule, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if r.Host != "" {
		at := path.Child("host")
		if _, err := netip.ParseAddr(r.Host); err == nil {
			errs = append(errs, field.Invalid(at, r.Host, "must be a DNS name, not an IP address"))
		}
		errs = append(errs, validateHost(r.Host, at)...)
	}
	if r.HTTP == nil {
		return errs
	}
	at := path.Child("http", "paths")
	if len(r.HTTP.Paths) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	for i := range enough.Each(r.HTTP.Paths, &errs) {
		errs = append(errs, validatePath(&r.HTTP.Paths[i], at.Index(i))...)
	}
	return errs
}

var pathTypes = []networkingv1.PathType{
	networkingv1.PathTypeExact, networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypePrefix,
}

func validatePath(p *networkingv1.HTTPIngressPath, path *field.Path) field.ErrorList {
	if p.PathType == nil {
		return field.ErrorList{field.Required(path.Child("pathType"), "pathType must be specified")}
	}
	var errs field.ErrorList
	at := path.Child("path")
	absolute := strings.HasPrefix(p.Path, "/")
	switch *p.PathType {
	case networkingv1.PathTypeExact, networkingv1.PathTypePrefix:
		if !absolute {
			errs = append(errs, field.Invalid(at, p.Path, "must be an absolute path"))
		}
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(p.Path, part) {
				errs = append(errs, field.Invalid(at, p.Path, fmt.Sprintf("must not contain '%s'", part)))
			}
		}
		for _, end := range []string{"/..", "/."} {
			if strings.HasSuffix(p.Path, end) {
				errs = append(errs, field.Invalid(at, p.Path, fmt.Sprintf("cannot end with '%s'", end)))
			}
		}
	case networkingv1.PathTypeImplementationSpecific:
		if p.Path != "" && !absolute {
			errs = append(errs, field.Invalid(at, p.Path, "must be an absolute path"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("pathType"), *p.PathType, pathTypes))
	}
	return append(errs, validateBackend(&p.Backend, path.Child("backend"))...)
}

func validateBackend(b *networkingv1.IngressBackend, path *field.Path) field.ErrorList {
	switch {
	case b.Resource != nil && b.Service != nil:
		return field.ErrorList{field.Invalid(path, "", "cannot set both resource and service backends")}
	case b.Resource != nil:
		return validateReference(b.Resource.APIGroup, b.Resource.Kind, b.Resource.Name, path.Child("resource"))
	case b.Service != nil:
		return validateService(b.Service, path)
	}
	return field.ErrorList{field.Invalid(path, "", "resource or service backend is required")}
}

func validateService(s *networkingv1.IngressServiceBackend, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if at := path.Child("service", "name"); s.Name == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, invalid(at, s.Name, validation.NameIsDNSLabel(s.Name, false))...)
	}
	at := path.Child("service", "port")
	switch {
	case s.Port.Name != "" && s.Port.Number != 0:
		errs = append(errs, field.Invalid(path, "", "cannot set both port name & port number"))
	case s.Port.Name != "":
		errs = append(errs, invalid(at.Child("name"), s.Port.Name, utilvalidation.IsValidPortName(s.Port.Name))...)
	case s.Port.Number != 0:
		errs = append(errs, invalid(at.Child("number"), s.Port.Number, utilvalidation.IsValidPortNum(int(s.Port.Number)))...)
	default:
		errs = append(errs, field.Required(path, "port name or number is required"))
	}
	return errs
}

// validateReference checks what names an object of any kind.
func validateReference(group *string, kind, name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if group != nil {
		errs = append(errs, invalid(path.Child("apiGroup"), *group, utilvalidation.IsDNS1123Subdomain(*group))...)
	}
	for _, part := range []struct{ child, value string }{{"kind", kind}, {"name", name}} {
		at := path.Child(part.child)
		if part.value == "" {
			errs = append(errs, field.Required(at, part.child+" is required"))
		} else {
			errs = append(errs, invalid(at, part.value, content.IsPathSegmentName(part.value))...)
		}
	}
	return errs
}

// validateAddresses checks where an Ingress is said to be reached.
func validateAddresses(i *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status", "loadBalancer", "ingress")
	for n, a := range enough.Each(i.Status.LoadBalancer.Ingress, &errs) {
		at := path.Index(n)
		if a.IP != "" {
			errs = append(errs, utilvalidation.IsValidIPForLegacyField(at.Child("ip"), a.IP, true, nil)...)
		}
		if a.Hostname != "" {
			errs = append(errs, invalid(at.Child("hostname"), a.Hostname, utilvalidation.IsDNS1123Subdomain(a.Hostname))...)
			if _, err := netip.ParseAddr(a.Hostname); err == nil {
				errs = append(errs, field.Invalid(at.Child("hostname"), a.Hostname, "must be a DNS name, not an IP address"))
			}
		}
	}
	return errs
}

// validateProtocol checks a protocol of a port.
func validateProtocol(p *corev1.Protocol, at *field.Path) field.ErrorList {
	known := []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}
	if p == nil || slices.Contains(known, *p) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, *p, known)}
}
