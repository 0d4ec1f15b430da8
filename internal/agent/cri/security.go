package cri

import (
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// seccompRoot is where profiles of type Localhost are found, by their name.
const seccompRoot = "/var/lib/kubelet/seccomp"

// Paths of /proc and /sys that containers do not see, or cannot write, unless they are privileged or ask for it.
var (
	maskedPaths = []string{"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap"}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// securityContext is what the container may do: its own wishes first, then the pod's, then the image's.
func (r *Runtime) securityContext(spec *ContainerSpec) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := spec.Container.SecurityContext
	if sc == nil {
		sc = &corev1.SecurityContext{}
	}
	pod := spec.Pod.Spec.SecurityContext
	if pod == nil {
		pod = &corev1.PodSecurityContext{}
	}
	shared, err := r.namespaces(spec.Pod)
	if err != nil {
		return nil, err
	}
	if spec.ProcessesOf != "" && shared.Pid == runtimeapi.NamespaceMode_CONTAINER {
		shared.Pid, shared.TargetId = runtimeapi.NamespaceMode_TARGET, spec.ProcessesOf
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions:   shared,
		Privileged:         isTrue(sc.Privileged),
		ReadonlyRootfs:     isTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:         noNewPrivileges(sc),
		Capabilities:       capabilities(sc.Capabilities),
		SupplementalGroups: supplementalGroups(pod), SupplementalGroupsPolicy: groupsPolicy(pod),
		SelinuxOptions: selinux(first(sc.SELinuxOptions, pod.SELinuxOptions)),
		Seccomp:        seccomp(r.seccompOf(sc, pod), isTrue(sc.Privileged)),
		Apparmor:       apparmor(first(sc.AppArmorProfile, pod.AppArmorProfile), isTrue(sc.Privileged)),
	}
	if sc.ProcMount == nil || *sc.ProcMount == corev1.DefaultProcMount {
		out.MaskedPaths, out.ReadonlyPaths = slices.Concat(maskedPaths, throttled("/")), readonlyPaths
	}
	user := first(sc.RunAsUser, pod.RunAsUser)
	setUser(out, spec.Image, user)
	if group := first(sc.RunAsGroup, pod.RunAsGroup); group != nil {
		out.RunAsGroup = &runtimeapi.Int64Value{Value: *group}
	}
	if isTrue(first(sc.RunAsNonRoot, pod.RunAsNonRoot)) {
		return out, checkNonRoot(spec, out, user == nil)
	}
	return out, nil
}

// throttled are the folders, below root, that tell how often each processor was slowed down for its heat: from that a
// container could guess what others compute.
func throttled(root string) []string {
	// The pattern is a good one, and that is the only error.
	found, _ := filepath.Glob(filepath.Join(root, "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle"))
	return found
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func isTrue(b *bool) bool { return b != nil && *b }

func setUser(out *runtimeapi.LinuxContainerSecurityContext, image Image, user *int64) {
	switch {
	case user != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *user}
	case image.UID != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *image.UID}
	default:
		out.RunAsUsername = image.User
	}
}

// checkNonRoot refuses a container that would be root, or may be, where the pod forbids it.
func checkNonRoot(spec *ContainerSpec, out *runtimeapi.LinuxContainerSecurityContext, fromImage bool) error {
	who := fmt.Sprintf("(pod: %q, container: %s)",
		spec.Pod.Name+"_"+spec.Pod.Namespace+"("+string(spec.Pod.UID)+")", spec.Container.Name)
	switch {
	case out.RunAsUsername != "":
		return &ConfigError{fmt.Sprintf(
			"container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s",
			out.RunAsUsername, who,
		)}
	case out.RunAsUser != nil && out.RunAsUser.Value != 0:
		return nil
	case fromImage:
		return &ConfigError{"container has runAsNonRoot and image will run as root " + who}
	default:
		return &ConfigError{"container's runAsUser breaks non-root policy " + who}
	}
}

// noNewPrivileges says whether the container's processes may not gain more rights than they start with.
func noNewPrivileges(sc *corev1.SecurityContext) bool {
	return sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation
}

func capabilities(c *corev1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, v := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(v))
	}
	for _, v := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(v))
	}
	return out
}

func supplementalGroups(sc *corev1.PodSecurityContext) []int64 {
	groups := slices.Clone(sc.SupplementalGroups)
	if sc.FSGroup != nil {
		groups = append(groups, *sc.FSGroup)
	}
	return groups
}

// groupsPolicy says whether the image's groups are added to the pod's.
func groupsPolicy(sc *corev1.PodSecurityContext) runtimeapi.SupplementalGroupsPolicy {
	if sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		return runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return runtimeapi.SupplementalGroupsPolicy_Merge
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// seccompOf is the profile that a container asks for, or that the node has for those that ask for none.
func (r *Runtime) seccompOf(sc *corev1.SecurityContext, pod *corev1.PodSecurityContext) *corev1.SeccompProfile {
	asked := first(sc.SeccompProfile, pod.SeccompProfile)
	if asked == nil && r.cfg.SeccompDefault {
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	return asked
}

func seccomp(p *corev1.SeccompProfile, privileged bool) *runtimeapi.SecurityProfile {
	unconfined := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	if p == nil || privileged {
		return unconfined
	}
	switch p.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	case corev1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile != nil && *p.LocalhostProfile != "" {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost,
				LocalhostRef: filepath.Join(seccompRoot, *p.LocalhostProfile)}
		}
	}
	return unconfined
}

func apparmor(p *corev1.AppArmorProfile, privileged bool) *runtimeapi.SecurityProfile {
	if p == nil || privileged {
		return nil
	}
	switch p.Type {
	case corev1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			return &runtimeapi.SecurityProfile{
				ProfileType:  runtimeapi.SecurityProfile_Localhost,
				LocalhostRef: *p.LocalhostProfile,
			}
		}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
}

func privilegedPod(pod *corev1.Pod) bool {
	for _, c := range podfacts.Containers(pod) {
		if sc := c.SecurityContext; sc != nil && isTrue(sc.Privileged) {
			return true
		}
	}
	return false
}
