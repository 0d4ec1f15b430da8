package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/agent/env"
	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/volumes"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// task is one action with a copy of all that it needs: it runs beside the worker.
type task struct {
	cfg    *Config
	action podworker.Action
	pod    *corev1.Pod
	// recorded is what the runtime keeps of the container's spec, of a pod that the API never showed.
	recorded *corev1.Container
	w        *worker
	ips      []string
	image    images.Image
	// target is the container of the pod whose processes the one to be made is to see; nil if it names none.
	target *podworker.Container
	// sandboxAttempt is the attempt of the sandbox that the action is about.
	sandboxAttempt uint32
}

func (w *worker) task(a podworker.Action) task {
	t := task{cfg: w.cfg, action: a, pod: w.in.Pod, w: w, image: w.present[a.Container], ips: w.podIPs()}
	if t.pod == nil {
		t.recorded = w.in.Runtime.Recorded(a.ContainerID)
	}
	if t.pod != nil && a.Kind == podworker.StartContainer {
		t.target = w.in.Runtime.Running(targetOf(t.pod, a.Container))
	}
	for _, s := range w.in.Runtime.Sandboxes {
		if s.ID == a.SandboxID {
			t.sandboxAttempt = s.Attempt
		}
	}
	return t
}

// perform does a serial action. Set-up work that only waits ends with setUp, all else with ctx.
func (t task) perform(ctx, setUp context.Context) (podworker.Outcome, images.Image) {
	a := t.action
	var err error
	switch a.Kind {
	case podworker.SetUpVolumes:
		return t.setUpVolumes(setUp), images.Image{}
	case podworker.PullImage:
		return t.pullImage(setUp)
	case podworker.StartContainer:
		return t.startContainer(ctx, setUp), images.Image{}
	case podworker.CreateSandbox:
		return t.createSandbox(ctx, setUp), images.Image{}
	case podworker.StopSandbox:
		if a.Message != "" {
			t.cfg.Events.Pod(t.pod, corev1.EventTypeNormal, a.Reason, a.Message)
		}
		err = t.cfg.Runtime.StopSandbox(ctx, a.SandboxID)
	case podworker.WidenPod, podworker.ResizeContainer, podworker.NarrowPod:
		return t.resize(ctx), images.Image{}
	case podworker.RemoveContainer:
		err = t.cfg.Runtime.RemoveContainer(ctx, a.ContainerID)
	case podworker.RemoveSandbox:
		err = t.cfg.Runtime.RemoveSandbox(ctx, a.SandboxID)
	case podworker.TearDownVolumes:
		err = errors.Join(t.releaseClaims(ctx), t.cfg.Volumes.TearDown(ctx, t.w.uid))
	case podworker.Finish:
		t.cfg.Statuses.Delete(t.pod, nil)
	case podworker.Forget:
		err = t.cfg.Runtime.Clean(ctx, t.w.uid)
	}
	if err != nil {
		klog.FromContext(ctx).Info("Could not act for a pod, will try again", "action", a.String(), "err", err)
		return failed(a.Kind.String(), err), images.Image{}
	}
	return podworker.Outcome{}, images.Image{}
}

func failed(reason string, err error) podworker.Outcome {
	return podworker.Outcome{Reason: reason, Message: cri.ErrorText(err)}
}

func (t task) setUpVolumes(ctx context.Context) podworker.Outcome {
	err := t.cfg.Volumes.SetUp(ctx, t.pod)
	if err == nil {
		return podworker.Outcome{}
	}
	if ctx.Err() == nil {
		for _, e := range flatten(err) {
			t.cfg.Events.Pod(t.pod, corev1.EventTypeWarning, "FailedMount", e.Error())
		}
	}
	return failed("FailedMount", err)
}

// flatten returns the errors that were joined into one.
func flatten(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	return []error{err}
}

func (t task) createSandbox(ctx, setUp context.Context) podworker.Outcome {
	if err := t.cfg.Claims.Prepare(setUp, t.pod); err != nil {
		if setUp.Err() == nil {
			t.cfg.Events.Pod(t.pod, corev1.EventTypeWarning, failedPrepare, "Failed to prepare dynamic resources: "+err.Error())
		}
		return failed(failedPrepare, err)
	}
	if setUp.Err() != nil {
		return failed("FailedCreatePodSandBox", setUp.Err()) // the pod is to end, and has no use for one any more
	}
	_, err := t.cfg.Runtime.CreateSandbox(ctx, t.pod, t.action.Attempt)
	if err == nil {
		return podworker.Outcome{}
	}
	t.cfg.Events.Pod(t.pod, corev1.EventTypeWarning, "FailedCreatePodSandBox",
		"Failed to create pod sandbox: "+cri.ErrorText(err))
	return failed("FailedCreatePodSandBox", err)
}

func (t task) pullImage(ctx context.Context) (podworker.Outcome, images.Image) {
	image, err := t.cfg.Images.Ensure(ctx, t.pod, t.container())
	var why *images.Error
	switch {
	case err == nil:
		return podworker.Outcome{}, image
	case errors.As(err, &why):
		return podworker.Outcome{Reason: why.Reason, Message: why.Message}, images.Image{}
	default:
		return failed(podworker.ReasonErrImagePull, err), images.Image{}
	}
}

// container is the container's spec, as far as it is known; nil if it is not.
func (t task) container() *corev1.Container {
	if t.pod == nil {
		return t.recorded
	}
	return podfacts.Container(t.pod, t.action.Container)
}

// startContainer makes and starts the container and runs its postStart hook, each told to the user.
func (t task) startContainer(ctx, setUp context.Context) podworker.Outcome {
	c := t.container()
	spec, err := t.containerSpec(ctx, c)
	if err != nil {
		return t.notStarted(podworker.ReasonCreateConfigError, err)
	}
	id, err := t.cfg.Runtime.CreateContainer(ctx, spec)
	var config *cri.ConfigError
	if errors.As(err, &config) {
		return t.notStarted(podworker.ReasonCreateConfigError, err)
	}
	if err != nil {
		return t.notStarted(podworker.ReasonCreateContainerError, err)
	}
	t.cfg.Events.Container(t.pod, c.Name, corev1.EventTypeNormal, "Created", "Created container: "+c.Name)
	if setUp.Err() != nil {
		// The pod is to end: it has been made to no purpose, and does not run for a moment.
		return podworker.Outcome{Reason: podworker.ReasonRunContainerError, Message: setUp.Err().Error()}
	}
	if err := t.cfg.Runtime.StartContainer(ctx, t.pod, c.Name, id, t.action.Attempt); err != nil {
		return t.notStarted(podworker.ReasonRunContainerError, err)
	}
	t.cfg.Events.Container(t.pod, c.Name, corev1.EventTypeNormal, "Started", "Started container "+c.Name)
	return t.postStart(ctx, setUp, c, id)
}

func (t task) notStarted(reason string, err error) podworker.Outcome {
	message := cri.ErrorText(err)
	t.cfg.Events.Container(t.pod, t.action.Container, corev1.EventTypeWarning, "Failed", "Error: "+message)
	return podworker.Outcome{Reason: reason, Message: message}
}

func (t task) containerSpec(ctx context.Context, c *corev1.Container) (cri.ContainerSpec, error) {
	vars, err := t.cfg.Env(ctx, t.pod, c, t.ips)
	if err != nil {
		return cri.ContainerSpec{}, err
	}
	mounts, err := t.cfg.Volumes.Mounts(ctx, t.pod, c)
	if err != nil {
		return cri.ContainerSpec{}, err
	}
	spec := cri.ContainerSpec{
		Pod: t.pod, Container: c, SandboxID: t.action.SandboxID, SandboxAttempt: t.sandboxAttempt, Attempt: t.action.Attempt,
		Image:  cri.Image{Ref: t.image.Ref, UID: t.image.UID, User: t.image.User},
		PodIPs: t.ips,
	}
	if name := targetOf(t.pod, c.Name); name != "" {
		if t.target == nil {
			return cri.ContainerSpec{}, fmt.Errorf("unable to find target container %q", name)
		}
		spec.ProcessesOf = t.target.ID
	}
	for _, v := range vars {
		spec.Env = append(spec.Env, cri.EnvVar{Name: v.Name, Value: v.Value})
	}
	given, err := t.cfg.Devices.Container(ctx, t.pod, c)
	if err != nil {
		return cri.ContainerSpec{}, err
	}
	addDevices(&spec, given)
	claimed, err := t.cfg.Claims.Container(ctx, t.pod, c)
	if err != nil {
		return cri.ContainerSpec{}, err
	}
	for _, name := range claimed {
		if !slices.Contains(spec.CDIDevices, name) {
			spec.CDIDevices = append(spec.CDIDevices, name)
		}
	}
	values := make(map[string]string, len(spec.Env))
	for _, v := range spec.Env {
		values[v.Name] = v.Value
	}
	lookup := func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
	spec.Command, err = expandAll(c.Command, lookup)
	if err != nil {
		return cri.ContainerSpec{}, fmt.Errorf("command: %w", err)
	}
	spec.Args, err = expandAll(c.Args, lookup)
	if err != nil {
		return cri.ContainerSpec{}, fmt.Errorf("args: %w", err)
	}
	addMounts(&spec, mounts)
	return spec, nil
}

// addMounts gives a container its volumes.
func addMounts(spec *cri.ContainerSpec, mounts []volumes.Mount) {
	for _, m := range mounts {
		spec.Mounts = append(spec.Mounts, cri.Mount{ContainerPath: m.ContainerPath, HostPath: m.HostPath,
			Image: m.Image.Ref, ImagePath: m.ImagePath, ReadOnly: m.ReadOnly,
			RecursiveReadOnly: m.RecursiveReadOnly, Propagation: m.Propagation})
		if m.Image.Digest != "" {
			if spec.VolumeImages == nil {
				spec.VolumeImages = map[string]string{}
			}
			spec.VolumeImages[m.Name] = m.Image.Digest
		}
	}
}

// targetOf names the container whose processes an ephemeral container wants to see; empty for none.
func targetOf(pod *corev1.Pod, container string) string {
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == container {
			return c.TargetContainerName
		}
	}
	return ""
}

func expandAll(words []string, lookup func(string) (string, bool)) ([]string, error) {
	out, size := make([]string, len(words)), 0
	for i, s := range words {
		word, err := env.Expand(s, lookup)
		if err != nil {
			return nil, err
		}
		size += len(word)
		if size > env.MaxTotal {
			return nil, fmt.Errorf("all words together are longer than %d bytes", env.MaxTotal)
		}
		out[i] = word
	}
	return out, nil
}

// kill stops the container within the grace period. The hook of one in an unknown state is not run.
func (t task) kill(ctx context.Context) podworker.Outcome {
	a := t.action
	t.cfg.Events.Container(t.pod, a.Container, corev1.EventTypeNormal, "Killing", a.Message)
	c := t.container()
	if a.Reason == podworker.KillUnknownState {
		c = nil
	}
	if err := t.stop(ctx, c, a.ContainerID, time.Duration(a.Grace)*time.Second); err != nil {
		if ctx.Err() == nil {
			t.cfg.Events.Container(t.pod, a.Container, corev1.EventTypeWarning, "FailedKillPod",
				fmt.Sprintf("error killing pod: %v", err))
		}
		return failed("FailedKillPod", err)
	}
	return podworker.Outcome{}
}
