package podadmission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestSysctls(t *testing.T) {
	allowed := []string{"kernel.msg*", "net.core.somaxconn"}
	for _, c := range []struct {
		name             string
		hostNet, hostIPC bool
		want             string
	}{
		{name: "net.ipv4.tcp_syncookies"},
		{name: "net/ipv4/tcp_syncookies"},
		{name: "kernel.shm_rmid_forced"},
		{name: "kernel.msgmax"},
		{name: "net.core.somaxconn"},
		{name: "net.core.somaxconn2", want: `"net.core.somaxconn2" not allowlisted`},
		{name: "kernel.sem", want: `"kernel.sem" not allowlisted`},
		{name: "vm.swappiness", want: `"vm.swappiness" not allowlisted`},
		{name: "net.ipv4.tcp_syncookies", hostNet: true, want: `"net.ipv4.tcp_syncookies" not allowed with host net enabled`},
		{name: "net.ipv4.tcp_syncookies", hostIPC: true},
		{name: "kernel.msgmax", hostIPC: true, want: `"kernel.msgmax" not allowed with host ipc enabled`},
	} {
		pod := boxPod()
		pod.Spec.HostNetwork, pod.Spec.HostIPC = c.hostNet, c.hostIPC
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: c.name, Value: "1"}}}
		got := sysctls(pod, allowed)
		switch {
		case c.want == "" && got != nil:
			t.Errorf("%+v: refused: %s", c, got.Message)
		case c.want != "" && (got == nil || got.Reason != "SysctlForbidden" || got.Message != "Pod was rejected: forbidden sysctl: "+c.want):
			t.Errorf("%+v: got %+v", c, got)
		}
	}
	if err := CheckSysctls([]string{"kernel.msg*", "vm.*"}); err == nil || !strings.Contains(err.Error(), `"vm.*" are not known to be namespaced`) {
		t.Errorf("a parameter of the whole machine may be allowed: %v", err)
	}
}
