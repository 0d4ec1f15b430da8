package podspec

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
	"github.com/everynode/everynode/internal/apiserver/podspec/placement"
)

// ValidateTemplate checks a new pod template at path.
func ValidateTemplate(template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	return ValidateTemplateUpdate(template, nil, path)
}

// ValidateTemplateUpdate checks a pod template at path that was old before, which is nil
// for a new one.
func ValidateTemplateUpdate(template, old *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(template.Labels, path.Child("labels"))
	errs = append(errs, validation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	errs = append(errs, ValidateAnnotations(template.Annotations, &template.Spec, path.Child("annotations"))...)
	errs = append(errs, validateSpec(&template.Spec, path.Child("spec"), false)...)
	if len(template.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("spec", "ephemeralContainers"),
			"ephemeral containers not allowed in pod template"))
	}
	var before []string
	if old != nil {
		before = addressesOf(&old.Spec)
	}
	return append(errs, unambiguous(&template.Spec, before, path.Child("spec"))...)
}

// ValidateNewPod checks the specification of a pod that is being created.
func ValidateNewPod(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := ValidatePod(spec, path)
	if len(spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(path.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if spec.NodeName != "" && len(spec.SchedulingGates) != 0 {
		errs = append(errs, field.Forbidden(path.Child("nodeName"),
			"cannot be set until all schedulingGates have been cleared"))
	}
	return append(errs, unambiguous(spec, nil, path)...)
}

// ValidatePod checks the specification of a pod, new or not.
func ValidatePod(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := validateSpec(spec, path, true)
	if spec.ServiceAccountName == "" {
		errs = append(errs, noTokens(spec.Volumes, path.Child("volumes"))...)
	}
	errs = append(errs, trimmedImages(spec.Containers, path.Child("containers"))...)
	return append(errs, trimmedImages(spec.InitContainers, path.Child("initContainers"))...)
}

// validateSpec checks what pods and templates have in common, in the order in
// which users of Kubernetes see the errors.
func validateSpec(spec *corev1.PodSpec, path *field.Path, isPod bool) field.ErrorList {
	volumes, errs := validateVolumes(spec.Volumes, path.Child("volumes"))
	c := containerChecks{spec: spec, volumes: volumes, claims: claimNames(spec.ResourceClaims)}
	errs = append(errs, validateResourceClaims(spec.ResourceClaims, path.Child("resourceClaims"))...)
	errs = append(errs, c.regular(path.Child("containers"))...)
	errs = append(errs, c.init(path.Child("initContainers"))...)
	errs = append(errs, c.ephemeral(path.Child("ephemeralContainers"))...)
	errs = append(errs, validatePodResources(spec, path.Child("resources"))...)
	errs = append(errs, hostNetworkPorts(spec, path.Child("containers"), isPod)...)
	errs = append(errs, check.Chosen(path.Child("restartPolicy"), spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)...)
	errs = append(errs, check.Chosen(path.Child("dnsPolicy"), spec.DNSPolicy,
		corev1.DNSClusterFirstWithHostNet, corev1.DNSClusterFirst, corev1.DNSDefault, corev1.DNSNone)...)
	errs = append(errs, metav1validation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	errs = append(errs, validatePodSecurity(spec, path.Child("securityContext"))...)
	errs = append(errs, placement.Affinity(spec.Affinity, path.Child("affinity"))...)
	errs = append(errs, validateDNSConfig(spec, path.Child("dnsConfig"))...)
	errs = append(errs, validateGates(spec, path)...)
	errs = append(errs, placement.TopologySpread(spec.TopologySpreadConstraints,
		path.Child("topologySpreadConstraints"))...)
	errs = append(errs, validateHostUsers(spec, path)...)
	errs = append(errs, validateNames(spec, path)...)
	errs = append(errs, placement.Tolerations(spec.Tolerations, path.Child("tolerations"))...)
	errs = append(errs, validateHostAliases(spec.HostAliases, path.Child("hostAliases"))...)
	return append(errs, validateClasses(spec, path)...)
}

// validateNames checks the single values that name something.
func validateNames(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.ServiceAccountName != "" {
		errs = append(errs, check.DNSSubdomain(path.Child("serviceAccountName"), spec.ServiceAccountName)...)
	}
	if spec.NodeName != "" {
		errs = append(errs, check.DNSSubdomain(path.Child("nodeName"), spec.NodeName)...)
	}
	if v := spec.ActiveDeadlineSeconds; v != nil && (*v < 1 || *v > math.MaxInt32) {
		errs = append(errs, field.Invalid(path.Child("activeDeadlineSeconds"), *v,
			utilvalidation.InclusiveRangeError(1, math.MaxInt32)))
	}
	if spec.Hostname != "" {
		errs = append(errs, check.DNSLabel(path.Child("hostname"), spec.Hostname)...)
	}
	if spec.Subdomain != "" {
		errs = append(errs, check.DNSLabel(path.Child("subdomain"), spec.Subdomain)...)
	}
	return errs
}

// validateClasses checks the classes a pod refers to and what comes with them.
func validateClasses(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if spec.PriorityClassName != "" {
		errs = append(errs, check.DNSSubdomain(path.Child("priorityClassName"), spec.PriorityClassName)...)
	}
	if spec.RuntimeClassName != nil {
		errs = append(errs, check.DNSSubdomain(path.Child("runtimeClassName"), *spec.RuntimeClassName)...)
	}
	if v := spec.PreemptionPolicy; v != nil {
		errs = append(errs, check.Chosen(path.Child("preemptionPolicy"), *v, corev1.PreemptLowerPriority,
			corev1.PreemptNever)...)
	}
	if spec.Overhead != nil {
		errs = append(errs, ValidateOverhead(spec.Overhead, path.Child("overhead"))...)
	}
	if spec.OS != nil {
		errs = append(errs, check.Chosen(path.Child("os", "name"), spec.OS.Name, corev1.Linux, corev1.Windows)...)
	}
	return errs
}

// noTokens refuses service account tokens in a pod that has no service account.
func noTokens(volumes []corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, v := range enough.Each(volumes, &errs) {
		if v.Projected == nil {
			continue
		}
		for j, source := range enough.Each(v.Projected.Sources, &errs) {
			if source.ServiceAccountToken != nil {
				errs = append(errs, field.Forbidden(path.Index(i).Child("projected",
					"sources").Index(j).Child("serviceAccountToken"),
					"must not be specified when serviceAccountName is not set"))
			}
		}
	}
	return errs
}
