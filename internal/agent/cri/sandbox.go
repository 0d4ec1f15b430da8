package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cri/labels"
)

// LogRoot is the folder of the logs of all pods.
func (r *Runtime) LogRoot() string { return r.cfg.LogRoot }

// LogDirectory is the folder of the logs of a pod's containers.
func (r *Runtime) LogDirectory(pod *corev1.Pod) string {
	return r.logs.Directory(pod)
}

// RotateLogs keeps the logs of running containers small until ctx ends.
func (r *Runtime) RotateLogs(ctx context.Context) { r.logs.Rotate(ctx) }

// CreateSandbox makes and starts the pod's sandbox with that attempt number, and its cgroup.
func (r *Runtime) CreateSandbox(ctx context.Context, pod *corev1.Pod, attempt uint32) (string, error) {
	handler, err := r.handlerOf(ctx, pod)
	if err != nil {
		return "", err
	}
	if err := r.checkUsers(ctx, pod, handler); err != nil {
		return "", err
	}
	config, err := r.sandboxConfig(pod, attempt)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return "", fmt.Errorf("make the log folder of pod %s: %w", pod.Name, err)
	}
	killed, err := r.cfg.Cgroups.KillStrays(ctx, pod.UID)
	if killed > 0 && r.cfg.Strays != nil {
		r.cfg.Strays(pod, killed)
	}
	if err != nil {
		return "", err
	}
	if err := r.cfg.Cgroups.Ensure(pod); err != nil {
		return "", err
	}
	if r.cfg.NoteAddresses != nil && !pod.Spec.HostNetwork {
		if err := r.noteAddresses(ctx); err != nil {
			return "", err
		}
	}
	return r.service.RunPodSandbox(ctx, config, handler)
}

// noteAddresses makes sure that no new sandbox gets an address that another one has.
func (r *Runtime) noteAddresses(ctx context.Context) error {
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	list, err := r.service.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{State: ready})
	if err != nil {
		return fmt.Errorf("list the sandboxes that have addresses: %w", err)
	}
	holders := map[string]string{}
	for _, s := range list {
		sandbox, err := r.readSandbox(ctx, s)
		if err != nil {
			return err
		}
		if sandbox == nil || !sandbox.Ready || sandbox.HostNetwork {
			continue
		}
		for _, ip := range sandbox.IPs {
			holders[ip] = sandbox.ID
		}
	}
	forgotten, err := r.cfg.NoteAddresses(holders)
	if len(forgotten) > 0 {
		klog.FromContext(ctx).Info("Somebody removed the notes of which addresses pods have; they are there again",
			"addresses", forgotten)
	}
	return err
}

// handlerOf is how the runtime calls the way in which the pod wants to be run, empty for the usual one.
func (r *Runtime) handlerOf(ctx context.Context, pod *corev1.Pod) (string, error) {
	class := pod.Spec.RuntimeClassName
	if class == nil || *class == "" {
		return "", nil
	}
	return r.cfg.Handler(ctx, *class)
}

func (r *Runtime) sandboxConfig(pod *corev1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	dns, err := r.cfg.DNS.Config(pod)
	if err != nil {
		return nil, err
	}
	shared, err := r.namespaces(pod)
	if err != nil {
		return nil, err
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt,
		},
		LogDirectory: r.LogDirectory(pod),
		DnsConfig:    dns,
		Labels:       labels.OfSandbox(pod),
		Annotations:  labels.SandboxAnnotations(pod),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: r.cfg.Cgroups.Of(pod),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				Privileged:       privilegedPod(pod),
				NamespaceOptions: shared,
				// The pod's own profile is for its containers: the sandbox's program may not be able to bear it.
				Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
	if !pod.Spec.HostNetwork {
		config.Hostname = r.cfg.DNS.Hostname(pod)
		config.PortMappings = portMappings(pod)
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		sandboxSecurity(config, sc)
	}
	return config, nil
}

func sandboxSecurity(config *runtimeapi.PodSandboxConfig, sc *corev1.PodSecurityContext) {
	linux := config.Linux
	if len(sc.Sysctls) > 0 {
		linux.Sysctls = make(map[string]string, len(sc.Sysctls))
		for _, s := range sc.Sysctls {
			linux.Sysctls[strings.ReplaceAll(s.Name, "/", ".")] = s.Value
		}
	}
	out := linux.SecurityContext
	if sc.RunAsUser != nil {
		out.RunAsUser = &runtimeapi.Int64Value{Value: *sc.RunAsUser}
	}
	if sc.RunAsGroup != nil && sc.RunAsUser != nil {
		out.RunAsGroup = &runtimeapi.Int64Value{Value: *sc.RunAsGroup}
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy = supplementalGroups(sc), groupsPolicy(sc)
	out.SelinuxOptions = selinux(sc.SELinuxOptions)
}

// namespaces says which namespaces the pod shares, with the node or among its containers.
func (r *Runtime) namespaces(pod *corev1.Pod) (*runtimeapi.NamespaceOption, error) {
	own, err := r.users.of(pod)
	if err != nil {
		return nil, err
	}
	n := &runtimeapi.NamespaceOption{
		UsernsOptions: own,
		Network:       runtimeapi.NamespaceMode_POD,
		Ipc:           runtimeapi.NamespaceMode_POD,
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
	}
	if pod.Spec.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		n.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		n.Pid = runtimeapi.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	return n, nil
}

func portMappings(pod *corev1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, p := range list[i].Ports {
				if p.HostPort == 0 {
					continue
				}
				out = append(out, &runtimeapi.PortMapping{
					Protocol: protocol(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort,
					HostIp: p.HostIP,
				})
			}
		}
	}
	return out
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	default:
		return runtimeapi.Protocol_TCP
	}
}

// StopSandbox ends what still runs in the sandbox and gives its network back.
func (r *Runtime) StopSandbox(ctx context.Context, id string) error {
	err := r.service.StopPodSandbox(ctx, id)
	if err != nil && !notFound(err) {
		if forgotten, forgetErr := forgetTorn(r.cfg.CNIResults, id); forgetErr != nil || !forgotten {
			return errors.Join(fmt.Errorf("stop sandbox %s: %w", id, err), forgetErr)
		}
		err = r.service.StopPodSandbox(ctx, id)
	}
	if err != nil && !notFound(err) {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	return nil
}

// RemoveSandbox removes the sandbox.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string) error {
	if err := r.service.RemovePodSandbox(ctx, id); err != nil && !notFound(err) {
		return fmt.Errorf("remove sandbox %s: %w", id, err)
	}
	r.mu.Lock()
	delete(r.sandboxes, id)
	r.mu.Unlock()
	return nil
}

// Clean removes what a pod without containers left on the node: its processes, cgroups, logs and own files. It does not
// touch volumes, and leaves the pod's folder while they are there.
func (r *Runtime) Clean(ctx context.Context, uid types.UID) error {
	killed, err := r.cfg.Cgroups.KillStrays(ctx, uid)
	if killed > 0 {
		klog.FromContext(ctx).Info("Killed processes that the container runtime had forgotten", "podUID", uid,
			"processes", killed)
	}
	if err != nil {
		return err
	}
	if err := r.cfg.Cgroups.Remove(uid); err != nil {
		return err
	}
	err = r.logs.RemoveAll(uid)
	if err != nil {
		return err
	}
	for _, name := range []string{"containers", "etc-hosts"} {
		if err := os.RemoveAll(filepath.Join(r.podDir(uid), name)); err != nil {
			return fmt.Errorf("remove the files of pod %s: %w", uid, err)
		}
	}
	if err := r.users.free(uid); err != nil {
		return err
	}
	// Fails while volumes are there, and then whoever removes them removes the folder.
	_ = os.Remove(r.podDir(uid))
	return nil
}
