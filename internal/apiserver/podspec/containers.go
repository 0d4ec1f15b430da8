package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// containerChecks is what the check of a container needs to know of its pod.
type containerChecks struct {
	spec    *corev1.PodSpec
	volumes map[string]corev1.VolumeSource
	claims  sets.Set[string]
}

// regular checks the containers that run side by side.
func (p containerChecks) regular(path *field.Path) field.ErrorList {
	if len(p.spec.Containers) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	names := sets.New[string]()
	for i := range enough.Each(p.spec.Containers, &errs) {
		c, at := &p.spec.Containers[i], path.Index(i)
		errs = append(errs, p.common(c, at)...)
		errs = append(errs, unique(names, c.Name, at)...)
		errs = append(errs, p.probes(c, at)...)
		errs = append(errs, validateRestart(c, at)...)
	}
	return append(errs, hostPortConflicts(p.spec.Containers, path)...)
}

// init checks the containers that run before, or, as sidecars, along with the others.
func (p containerChecks) init(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for _, c := range p.spec.Containers {
		names.Insert(c.Name)
	}
	for i := range enough.Each(p.spec.InitContainers, &errs) {
		c, at := &p.spec.InitContainers[i], path.Index(i)
		errs = append(errs, p.common(c, at)...)
		errs = append(errs, validateRestart(c, at)...)
		if c.Name != "" {
			errs = append(errs, unique(names, c.Name, at)...)
		}
		errs = append(errs, hostPortConflicts(p.spec.InitContainers[i:i+1], path)...)
		if podfacts.IsSidecar(c) {
			errs = append(errs, p.probes(c, at)...)
		} else {
			errs = append(errs, noProbes(c, at)...)
		}
	}
	return errs
}

func unique(names sets.Set[string], name string, path *field.Path) field.ErrorList {
	if names.Has(name) {
		return field.ErrorList{field.Duplicate(path.Child("name"), name)}
	}
	names.Insert(name)
	return nil
}

// common checks what containers of every sort share.
func (p containerChecks) common(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, check.DNSLabel(path.Child("name"), c.Name)...)
	}
	errs = append(errs, check.Required(path.Child("image"), c.Image)...)
	errs = append(errs, check.Chosen(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validatePorts(c.Ports, path.Child("ports"))...)
	errs = append(errs, p.env(c.Env, path.Child("env"))...)
	errs = append(errs, validateEnvFrom(c.EnvFrom, path.Child("envFrom"))...)
	errs = append(errs, p.mounts(c, path.Child("volumeMounts"))...)
	errs = append(errs, p.devices(c, path.Child("volumeDevices"))...)
	errs = append(errs, check.Chosen(path.Child("imagePullPolicy"), c.ImagePullPolicy,
		corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, validateRequirements(&c.Resources, p.claims, path.Child("resources"))...)
	errs = append(errs, p.resizePolicy(c.ResizePolicy, path.Child("resizePolicy"))...)
	hostUsers := p.spec.HostUsers == nil || *p.spec.HostUsers
	return append(errs, validateSecurity(c.SecurityContext, hostUsers, path.Child("securityContext"))...)
}

// probes checks what only containers that stay can have.
func (p containerChecks) probes(c *corev1.Container, path *field.Path) field.ErrorList {
	grace := p.spec.TerminationGracePeriodSeconds
	errs := validateLifecycle(c.Lifecycle, grace, path.Child("lifecycle"))
	errs = append(errs, validateLivenessProbe(c.LivenessProbe, grace, path.Child("livenessProbe"))...)
	errs = append(errs, validateReadinessProbe(c.ReadinessProbe, grace, path.Child("readinessProbe"))...)
	return append(errs, validateLivenessProbe(c.StartupProbe, grace, path.Child("startupProbe"))...)
}

func noProbes(c *corev1.Container, path *field.Path) field.ErrorList {
	const why = "may not be set for init containers without restartPolicy=Always"
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"lifecycle", c.Lifecycle != nil},
		{"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name), why))
		}
	}
	return errs
}

// validateRestart checks a container's own restart policy and its rules.
func validateRestart(c *corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.RestartPolicy != nil {
		errs = append(errs, check.Supported(path.Child("restartPolicy"), *c.RestartPolicy,
			corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	}
	if len(c.RestartPolicyRules) == 0 {
		return errs
	}
	if c.RestartPolicy == nil {
		errs = append(errs, field.Required(path.Child("restartPolicy"),
			"must specify restartPolicy when restart rules are used"))
	}
	const most = 20
	at := path.Child("restartPolicyRules")
	if len(c.RestartPolicyRules) > most {
		errs = append(errs, field.TooMany(at, len(c.RestartPolicyRules), most))
	}
	for i, rule := range enough.Each(c.RestartPolicyRules, &errs) {
		errs = append(errs, validateRestartRule(&rule, at.Index(i))...)
	}
	return errs
}

func validateRestartRule(rule *corev1.ContainerRestartRule, path *field.Path) field.ErrorList {
	errs := check.Supported(path.Child("action"), rule.Action, corev1.ContainerRestartRuleActionRestart)
	codes := rule.ExitCodes
	if codes == nil {
		return append(errs, field.Required(path.Child("exitCodes"), "must be specified"))
	}
	at := path.Child("exitCodes")
	errs = append(errs, check.Supported(at.Child("operator"), codes.Operator,
		corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
	const most = 255
	if len(codes.Values) > most {
		errs = append(errs, field.TooMany(at.Child("values"), len(codes.Values), most))
	}
	return errs
}

// resizePolicy checks what happens to a container whose resources change.
func (p containerChecks) resizePolicy(policies []corev1.ContainerResizePolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[corev1.ResourceName]()
	for i, r := range enough.Each(policies, &errs) {
		at := path.Index(i)
		if seen.Has(r.ResourceName) {
			errs = append(errs, field.Duplicate(at, r.ResourceName))
		}
		seen.Insert(r.ResourceName)
		errs = append(errs, check.Chosen(path, r.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, check.Chosen(path, r.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)...)
		if p.spec.RestartPolicy == corev1.RestartPolicyNever && r.RestartPolicy != corev1.NotRequired &&
			r.RestartPolicy != "" {
			errs = append(errs, field.Invalid(path, r.RestartPolicy, "must be 'NotRequired' when `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// trimmedImages refuses blanks around an image's name. Templates may have them.
func trimmedImages(containers []corev1.Container, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range enough.Each(containers, &errs) {
		errs = append(errs, trimmedImage(&containers[i], path.Index(i))...)
	}
	return errs
}

func trimmedImage(c *corev1.Container, path *field.Path) field.ErrorList {
	if strings.TrimSpace(c.Image) == c.Image {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace")}
}

func claimNames(claims []corev1.PodResourceClaim) sets.Set[string] {
	names := sets.New[string]()
	for _, c := range claims {
		names.Insert(c.Name)
	}
	return names
}

func validateResourceClaims(claims []corev1.PodResourceClaim, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, c := range enough.Each(claims, &errs) {
		at := path.Index(i)
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case names.Has(c.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		default:
			errs = append(errs, check.DNSLabel(at.Child("name"), c.Name)...)
			names.Insert(c.Name)
		}
		if c.ResourceClaimName != nil && c.ResourceClaimTemplateName != nil {
			errs = append(errs, field.Invalid(
				at, c, "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
			))
		}
		if c.ResourceClaimName == nil && c.ResourceClaimTemplateName == nil {
			errs = append(errs, field.Required(at, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
		for _, f := range []struct {
			name  string
			value *string
		}{{"resourceClaimName", c.ResourceClaimName}, {"resourceClaimTemplateName", c.ResourceClaimTemplateName}} {
			if f.value != nil {
				errs = append(errs, check.Invalid(at.Child(f.name), *f.value, validation.NameIsDNSSubdomain(*f.value, false))...)
			}
		}
	}
	return errs
}
