package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/podadmission"
)

// newDevices makes the node's side of device plugins.
func (a *Agent) newDevices(n *node) *devices.Manager {
	return devices.New(devices.Config{
		Dir: filepath.Join(a.cfg.KubeletDir, "device-plugins"), Clock: a.clk,
		Changed: func() { n.reporter.Check() },
		CDI:     func(ctx context.Context) (bool, error) { return n.runtime.KnowsCDI(ctx) },
	})
}

// reportDevices says why no pod can have devices, of plugins or by claims, if that is so.
func (a *Agent) reportDevices(ctx context.Context, n *node, ev events) {
	if err := n.devices.Problem(); err != nil {
		klog.FromContext(ctx).Error(err, "No device plugin is accepted")
		ev.node(a.cfg.NodeName, "InvalidDeviceCheckpoint", err.Error())
	}
	if err := n.claims.Problem(); err != nil {
		klog.FromContext(ctx).Error(err, "No resource claim is prepared")
		ev.node(a.cfg.NodeName, "InvalidResourceClaims", err.Error())
	}
}

// giveDevices gives the pod the devices that it asks for, or says why it cannot have them. It has its room on the node then.
func (w *worker) giveDevices(ctx context.Context, pod *corev1.Pod) *podadmission.Refusal {
	err := w.devices.Admit(ctx, pod)
	if err == nil {
		return nil
	}
	w.release(pod.UID)
	return &podadmission.Refusal{Reason: "UnexpectedAdmissionError", Message: fmt.Sprintf("Pod was rejected: Allocate failed due to %v, which is unexpected", err)}
}

// addDevices adds what the container's devices need. What the pod itself says goes first.
func addDevices(spec *cri.ContainerSpec, given devices.Options) {
	var before []cri.EnvVar
	for _, v := range given.Env {
		if !slices.ContainsFunc(spec.Env, func(own cri.EnvVar) bool { return own.Name == v.Name }) {
			before = append(before, cri.EnvVar{Name: v.Name, Value: v.Value})
		}
	}
	spec.Env = append(before, spec.Env...)
	for _, m := range given.Mounts {
		spec.Mounts = append(spec.Mounts, cri.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath, ReadOnly: m.ReadOnly,
			Propagation: corev1.MountPropagationNone})
	}
	for _, d := range given.Nodes {
		spec.Devices = append(spec.Devices, cri.Device(d))
	}
	spec.CDIDevices, spec.Annotations = given.CDI, given.Annotations
}
