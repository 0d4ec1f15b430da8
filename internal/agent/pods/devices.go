package pods

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/devices"
	"github.com/everynode/everynode/internal/agent/podadmission"
)

// Reasons of events about a pod's claims to devices.
const (
	failedPrepare   = "FailedPrepareDynamicResources"
	failedUnprepare = "FailedUnprepareDynamicResources"
)

// giveDevices gives the pod the devices that it asks for, or says why it cannot have them. It has its room on the node
// then.
func (w *worker) giveDevices(ctx context.Context, pod *corev1.Pod) *podadmission.Refusal {
	err := w.cfg.Devices.Admit(ctx, pod)
	if err == nil {
		return nil
	}
	w.home.release(pod.UID)
	return &podadmission.Refusal{Reason: "UnexpectedAdmissionError",
		Message: fmt.Sprintf("Pod was rejected: Allocate failed due to %v, which is unexpected", err)}
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
		spec.Mounts = append(spec.Mounts, cri.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath,
			ReadOnly:    m.ReadOnly,
			Propagation: corev1.MountPropagationNone})
	}
	for _, d := range given.Nodes {
		spec.Devices = append(spec.Devices, cri.Device(d))
	}
	spec.CDIDevices, spec.Annotations = given.CDI, given.Annotations
}

// releaseClaims has drivers undo what they did for the pod.
func (t task) releaseClaims(ctx context.Context) error {
	err := t.cfg.Claims.Release(ctx, t.w.uid)
	if err != nil && ctx.Err() == nil && t.pod != nil {
		t.cfg.Events.Pod(t.pod, corev1.EventTypeWarning, failedUnprepare,
			"Failed to give back dynamic resources: "+err.Error())
	}
	return err
}
