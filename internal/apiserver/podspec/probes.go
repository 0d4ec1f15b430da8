package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

// validateLivenessProbe checks probes whose failure ends the container.
func validateLivenessProbe(p *corev1.Probe, grace *int64, path *field.Path) field.ErrorList {
	errs := validateProbe(p, grace, path)
	if p != nil && p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	return errs
}

func validateReadinessProbe(p *corev1.Probe, grace *int64, path *field.Path) field.ErrorList {
	errs := validateProbe(p, grace, path)
	if p != nil && p.TerminationGracePeriodSeconds != nil {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds,
			"must not be set for readinessProbes"))
	}
	return errs
}

func validateProbe(p *corev1.Probe, grace *int64, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateHandler(handler{p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil}, grace, path)
	errs = append(errs, check.NonNegative(path.Child("initialDelaySeconds"), p.InitialDelaySeconds)...)
	errs = append(errs, check.NonNegative(path.Child("timeoutSeconds"), p.TimeoutSeconds)...)
	errs = append(errs, check.NonNegative(path.Child("periodSeconds"), p.PeriodSeconds)...)
	errs = append(errs, check.NonNegative(path.Child("successThreshold"), p.SuccessThreshold)...)
	errs = append(errs, check.NonNegative(path.Child("failureThreshold"), p.FailureThreshold)...)
	if v := p.TerminationGracePeriodSeconds; v != nil && *v <= 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *v, "must be greater than 0"))
	}
	return errs
}

func validateLifecycle(l *corev1.Lifecycle, grace *int64, path *field.Path) field.ErrorList {
	if l == nil {
		return nil
	}
	var errs field.ErrorList
	if h := l.PostStart; h != nil {
		errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}, grace,
			path.Child("postStart"))...)
	}
	if h := l.PreStop; h != nil {
		errs = append(errs, validateHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep}, grace,
			path.Child("preStop"))...)
	}
	return errs
}

// handler is what a probe or a hook does; exactly one of it.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

func validateHandler(h handler, grace *int64, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := false
	try := func(name string, set bool, check func(*field.Path) field.ErrorList) {
		switch {
		case !set:
		case found:
			errs = append(errs, field.Forbidden(path.Child(name), "may not specify more than 1 handler type"))
		default:
			found = true
			errs = append(errs, check(path.Child(name))...)
		}
	}
	try("exec", h.exec != nil, func(at *field.Path) field.ErrorList {
		if len(h.exec.Command) == 0 {
			return field.ErrorList{field.Required(at.Child("command"), "")}
		}
		return nil
	})
	try("httpGet", h.http != nil, func(at *field.Path) field.ErrorList { return validateHTTPGet(h.http, at) })
	try("tcpSocket", h.tcp != nil, func(at *field.Path) field.ErrorList {
		return PortNumberOrName(at.Child("port"),
			h.tcp.Port)
	})
	try("grpc", h.grpc != nil, func(at *field.Path) field.ErrorList {
		return PortNumberOrName(at.Child("port"), intstr.FromInt32(h.grpc.Port))
	})
	try("sleep", h.sleep != nil, func(at *field.Path) field.ErrorList { return validateSleep(h.sleep, grace, at) })
	if !found {
		errs = append(errs, field.Required(path, "must specify a handler type"))
	}
	return errs
}

func validateHTTPGet(get *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	errs := check.Required(path.Child("path"), get.Path)
	errs = append(errs, PortNumberOrName(path.Child("port"), get.Port)...)
	errs = append(errs, check.Supported(path.Child("scheme"), get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for _, header := range enough.Each(get.HTTPHeaders, &errs) {
		errs = append(errs, check.Invalid(path.Child("httpHeaders"), header.Name,
			utilvalidation.IsHTTPHeaderName(header.Name))...)
	}
	return errs
}

// validateSleep keeps a pause shorter than the time the pod has to end.
func validateSleep(sleep *corev1.SleepAction, grace *int64, path *field.Path) field.ErrorList {
	if grace == nil || sleep.Seconds >= 0 && sleep.Seconds <= *grace {
		return nil
	}
	return field.ErrorList{field.Invalid(path, sleep.Seconds,
		"must be non-negative and less than terminationGracePeriodSeconds ("+itoa(*grace)+")")}
}
