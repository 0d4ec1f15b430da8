package podspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

// validatePodSecurity checks the settings that all containers of a pod share.
func validatePodSecurity(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	sc := spec.SecurityContext
	if sc == nil {
		return nil
	}
	var errs field.ErrorList
	if sc.FSGroup != nil {
		errs = append(errs, groupID(path.Child("fsGroup"), *sc.FSGroup)...)
	}
	errs = append(errs, identity(sc.RunAsUser, sc.RunAsGroup, path)...)
	for i, group := range enough.Each(sc.SupplementalGroups, &errs) {
		errs = append(errs, groupID(path.Child("supplementalGroups").Index(i), group)...)
	}
	if spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace && spec.HostPID {
		errs = append(errs, field.Invalid(path.Child("shareProcessNamespace"), true,
			"ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	errs = append(errs, validateSysctls(spec, path.Child("sysctls"))...)
	if v := sc.FSGroupChangePolicy; v != nil {
		errs = append(errs, check.Supported(path.Child("fsGroupChangePolicy"), *v, corev1.FSGroupChangeAlways,
			corev1.FSGroupChangeOnRootMismatch)...)
	}
	errs = append(errs, validateSeccomp(sc.SeccompProfile, path.Child("seccompProfile"))...)
	errs = append(errs, validateAppArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))...)
	if v := sc.SupplementalGroupsPolicy; v != nil {
		errs = append(errs, check.Supported(path.Child("supplementalGroupsPolicy"), *v, corev1.SupplementalGroupsPolicyMerge,
			corev1.SupplementalGroupsPolicyStrict)...)
	}
	if v := sc.SELinuxChangePolicy; v != nil {
		errs = append(errs, check.Supported(path.Child("seLinuxChangePolicy"), *v, corev1.SELinuxChangePolicyMountOption,
			corev1.SELinuxChangePolicyRecursive)...)
	}
	return errs
}

func groupID(path *field.Path, id int64) field.ErrorList {
	return check.Invalid(path, id, utilvalidation.IsValidGroupID(id))
}

func identity(user, group *int64, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if user != nil {
		errs = append(errs, check.Invalid(path.Child("runAsUser"), *user, utilvalidation.IsValidUserID(*user))...)
	}
	if group != nil {
		errs = append(errs, groupID(path.Child("runAsGroup"), *group)...)
	}
	return errs
}

const (
	sysctlLength  = 253
	sysctlSegment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	sysctlName    = "^(" + sysctlSegment + "[\\./])*" + sysctlSegment + "$"
)

var sysctlPattern = regexp.MustCompile(sysctlName)

// IsValidSysctlName says whether a kernel parameter can be called so.
func IsValidSysctlName(name string) bool {
	return len(name) <= sysctlLength && sysctlPattern.MatchString(name)
}

func validateSysctls(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, s := range enough.Each(spec.SecurityContext.Sysctls, &errs) {
		at := path.Index(i).Child("name")
		name := strings.ReplaceAll(s.Name, "/", ".")
		switch {
		case s.Name == "":
			errs = append(errs, field.Required(at, ""))
		case !IsValidSysctlName(s.Name):
			errs = append(errs, field.Invalid(at, s.Name, fmt.Sprintf("must have at most %d characters and match regex %s",
				sysctlLength, sysctlName)))
		case names.Has(s.Name):
			errs = append(errs, field.Duplicate(at, s.Name))
		}
		names.Insert(s.Name)
		if spec.HostNetwork && strings.HasPrefix(name, "net.") {
			errs = append(errs, field.Invalid(at, s.Name, "may not be specified when 'hostNetwork' is true"))
		}
		if spec.HostIPC && isIPCSysctl(name) {
			errs = append(errs, field.Invalid(at, s.Name, "may not be specified when 'hostIPC' is true"))
		}
	}
	return errs
}

func isIPCSysctl(name string) bool {
	return name == "kernel.sem" || strings.HasPrefix(name, "kernel.shm") || strings.HasPrefix(name, "kernel.msg") ||
		strings.HasPrefix(name, "fs.mqueue.")
}

func validateSeccomp(p *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	if p.Type == "" {
		return field.ErrorList{field.Required(path.Child("type"), "type is required when seccompProfile is set")}
	}
	at := path.Child("localhostProfile")
	switch {
	case p.Type == corev1.SeccompProfileTypeLocalhost && p.LocalhostProfile == nil:
		return field.ErrorList{field.Required(at, "must be set when seccomp type is Localhost")}
	case p.Type == corev1.SeccompProfileTypeLocalhost:
		return check.BelowRoot(at, *p.LocalhostProfile)
	case p.LocalhostProfile != nil:
		return field.ErrorList{field.Invalid(at, p.LocalhostProfile, "can only be set when seccomp type is Localhost")}
	}
	return check.Supported(path.Child("type"), p.Type,
		corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
}

func validateAppArmor(p *corev1.AppArmorProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	at := path.Child("localhostProfile")
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil {
			return field.ErrorList{field.Required(at, "must be set when AppArmor type is Localhost")}
		}
		name := strings.TrimSpace(*p.LocalhostProfile)
		const longest = 4095
		switch {
		case name != *p.LocalhostProfile:
			return field.ErrorList{field.Invalid(at, *p.LocalhostProfile, "must not be padded with whitespace")}
		case name == "":
			return field.ErrorList{field.Required(at, "must be set when AppArmor type is Localhost")}
		case len(name) > longest:
			return field.ErrorList{field.TooLong(at, name, longest)}
		}
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			return field.ErrorList{field.Invalid(at, p.LocalhostProfile, "can only be set when AppArmor type is Localhost")}
		}
	case "":
		return field.ErrorList{field.Required(path.Child("type"), "type is required when appArmorProfile is set")}
	default:
		return check.Supported(path.Child("type"), p.Type,
			corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	}
	return nil
}

// validateSecurity checks one container's own settings. hostUsers says that root in it is root on the node.
func validateSecurity(sc *corev1.SecurityContext, hostUsers bool, path *field.Path) field.ErrorList {
	if sc == nil {
		return nil
	}
	errs := identity(sc.RunAsUser, sc.RunAsGroup, path)
	if v := sc.ProcMount; v != nil {
		errs = append(errs, check.Supported(path.Child("procMount"), *v, corev1.DefaultProcMount,
			corev1.UnmaskedProcMount)...)
		if hostUsers && *v == corev1.UnmaskedProcMount {
			errs = append(errs, field.Invalid(path.Child("procMount"), *v, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	errs = append(errs, validateSeccomp(sc.SeccompProfile, path.Child("seccompProfile"))...)
	if v := sc.AllowPrivilegeEscalation; v != nil && !*v {
		if sc.Privileged != nil && *sc.Privileged {
			errs = append(errs, field.Invalid(path, shownSecurity(sc),
				"cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if sc.Capabilities != nil && slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") {
			errs = append(errs, field.Invalid(path, shownSecurity(sc),
				"cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
		}
	}
	return append(errs, validateAppArmor(sc.AppArmorProfile, path.Child("appArmorProfile"))...)
}

// shownSecurity is how error texts spell a container's security context: all
// fields, under their Go names.
func shownSecurity(sc *corev1.SecurityContext) any {
	type capabilities struct{ Add, Drop []corev1.Capability }
	type selinux struct{ User, Role, Type, Level string }
	type seccomp struct {
		Type             corev1.SeccompProfileType
		LocalhostProfile *string
	}
	type apparmor struct {
		Type             corev1.AppArmorProfileType
		LocalhostProfile *string
	}
	shown := struct {
		Capabilities             *capabilities
		Privileged               *bool
		SELinuxOptions           *selinux
		WindowsOptions           *corev1.WindowsSecurityContextOptions
		RunAsUser, RunAsGroup    *int64
		RunAsNonRoot             *bool
		ReadOnlyRootFilesystem   *bool
		AllowPrivilegeEscalation *bool
		ProcMount                *corev1.ProcMountType
		SeccompProfile           *seccomp
		AppArmorProfile          *apparmor
	}{
		Privileged: sc.Privileged, WindowsOptions: sc.WindowsOptions, RunAsUser: sc.RunAsUser, RunAsGroup: sc.RunAsGroup,
		RunAsNonRoot: sc.RunAsNonRoot, ReadOnlyRootFilesystem: sc.ReadOnlyRootFilesystem,
		AllowPrivilegeEscalation: sc.AllowPrivilegeEscalation, ProcMount: sc.ProcMount,
	}
	if c := sc.Capabilities; c != nil {
		shown.Capabilities = &capabilities{c.Add, c.Drop}
	}
	if o := sc.SELinuxOptions; o != nil {
		shown.SELinuxOptions = &selinux{o.User, o.Role, o.Type, o.Level}
	}
	if p := sc.SeccompProfile; p != nil {
		shown.SeccompProfile = &seccomp{p.Type, p.LocalhostProfile}
	}
	if p := sc.AppArmorProfile; p != nil {
		shown.AppArmorProfile = &apparmor{p.Type, p.LocalhostProfile}
	}
	return shown
}

// validateHostUsers checks a pod that has users of its own.
func validateHostUsers(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if spec.HostUsers == nil || *spec.HostUsers {
		return nil
	}
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		set  bool
	}{{"hostNetwork", spec.HostNetwork}, {"hostPID", spec.HostPID}, {"hostIPC", spec.HostIPC}} {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name),
				fmt.Sprintf("when `pod.Spec.HostUsers` is false, %s must be false", f.name)))
		}
	}
	return errs
}
