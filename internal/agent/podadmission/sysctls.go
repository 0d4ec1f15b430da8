package podadmission

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// safeSysctls are the kernel parameters that every pod may set: they are its own, and hurt nobody else.
var safeSysctls = []string{
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ping_group_range", "net.ipv4.tcp_syncookies",
	"net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem",
}

// sysctlNamespace is the kind of namespace, net or ipc, that has the parameters of the pattern for itself; empty if the
// whole machine shares them.
func sysctlNamespace(pattern string) string {
	switch {
	case strings.HasPrefix(pattern, "net."):
		return "net"
	case pattern == "kernel.sem", strings.HasPrefix(pattern, "kernel.shm"), strings.HasPrefix(pattern, "kernel.msg"),
		strings.HasPrefix(pattern, "fs.mqueue."):
		return "ipc"
	}
	return ""
}

// CheckSysctls refuses patterns that would let a pod change the machine.
func CheckSysctls(patterns []string) error {
	for _, p := range patterns {
		if sysctlNamespace(p) == "" {
			return fmt.Errorf("--allowed-unsafe-sysctls: the sysctls %q are not known to be namespaced", p)
		}
	}
	return nil
}

// sysctls says which kernel parameter the pod may not set; allowed are the unsafe ones that pods may, each a name or a
// prefix with * behind it.
func sysctls(pod *corev1.Pod, allowed []string) *Refusal {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		name := strings.ReplaceAll(s.Name, "/", ".")
		why := ""
		switch space := sysctlNamespace(name); {
		case !matchesAny(name, safeSysctls) && !matchesAny(name, allowed):
			why = "not allowlisted"
		case space == "net" && pod.Spec.HostNetwork:
			why = "not allowed with host net enabled"
		case space == "ipc" && pod.Spec.HostIPC:
			why = "not allowed with host ipc enabled"
		}
		if why != "" {
			return &Refusal{"SysctlForbidden", fmt.Sprintf("Pod was rejected: forbidden sysctl: %q %s", s.Name, why)}
		}
	}
	return nil
}

func matchesAny(name string, patterns []string) bool {
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "*"); name == p || (ok && strings.HasPrefix(name, prefix)) {
			return true
		}
	}
	return false
}
