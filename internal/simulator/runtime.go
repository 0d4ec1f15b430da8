package simulator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/internal/simulator/mounts"
)

// pod is one pod on a simulated node: the state machine with a runtime that exists only here. It is pure but for the
// address that it asks for, and belongs to the worker that has the pod's UID from the queue.
type pod struct {
	uid         string
	hostIPs     []string
	image       func(string) Image
	imageID     func(image string, now time.Time) string
	takeAddress func() (string, error)

	memory  podworker.Memory
	runtime podworker.Runtime
	// pulling is the pull under way, until pulled.
	pulling *podworker.Action
	pulled  time.Time
	// present is the image that a slow pull brought.
	present string
	// volumes are the digests of its image volumes, by the volume's name.
	volumes map[string]string
	// fetching is what the node fetches for the pod's successor; hasImage and keepImage are about what it has fetched.
	fetching  fetching
	hasImage  func(image string) bool
	keepImage func(image string)
	// pending is why the pod has not the cpu and memory that it asks for.
	pending podworker.Pending
	// ward is what ails the pod, boots how often its node had come back from a loss of power when it last acted.
	ward  *illness.Ward
	boots int
	// shown is what the pod has of ConfigMaps and Secrets, if that was asked.
	shown mounts.Shown
	// toldUnready is the container of which was told that its probes fail, and toldUnread: that its fault cannot be read.
	toldUnready string
	toldUnread  bool
	// events are what there is to tell since the last step.
	events []event
}

// result is what a step asks to be done.
type result struct {
	// Status to be written; nil if the API has it already.
	status *corev1.PodStatus
	// finish: nothing is left of the pod, delete it. The action is handed back to finished.
	finish *podworker.Action
	// forget: the pod is gone from the API too.
	forget bool
	// again is when to step again though nothing happened; zero if there is no such time.
	again time.Time
}

// step decides and acts until nothing more can be done now. Gone says that the API no longer has the pod.
func (p *pod) step(object *corev1.Pod, gone bool, now time.Time) result {
	in := podworker.Input{Pod: object, Gone: gone, Runtime: &p.runtime, Memory: &p.memory, Pending: p.pending, Now: now}
	in.Content = p.shown.Content()
	if p.pulling != nil && !now.Before(p.pulled) {
		p.endPull(object, now)
	}
	var res result
	for {
		ends := p.end(object, now)
		var next time.Time
		in.Probes, next = p.probes(object, now)
		plan := podworker.Decide(in)
		if plan.Abandon && p.pulling != nil {
			p.endPull(object, now)
			continue
		}
		res.again = earliest(ends, next, plan.Deadline, p.pulled)
		if len(plan.Actions) == 0 {
			break
		}
		for _, action := range plan.Actions {
			p.memory.Begin(action, now)
			switch action.Kind {
			case podworker.Finish:
				res.finish = &action
				return res
			case podworker.Forget:
				p.memory.Done(action, podworker.Outcome{}, now)
				return result{forget: true}
			default:
				p.perform(object, action, now)
			}
		}
	}
	if !p.memory.Finished() && !gone {
		res.again = earliest(res.again, p.fetch(object, now))
		if p.pending.Reason == corev1.PodReasonDeferred {
			res.again = earliest(res.again, now.Add(roomAgain))
		}
		in.Fetched = p.fetching.answer
		status := podworker.Status(in, &object.Status, p.hostIPs)
		res.status = &status
	}
	return res
}

// finished records how the deletion of the pod went.
func (p *pod) finished(action podworker.Action, err error, now time.Time) {
	outcome := podworker.Outcome{}
	if err != nil {
		outcome = podworker.Outcome{Reason: "DeleteFailed", Message: err.Error()}
	}
	p.memory.Done(action, outcome, now)
}

// perform does what a node would do. Only a pull may take time.
func (p *pod) perform(object *corev1.Pod, action podworker.Action, now time.Time) {
	outcome := podworker.Outcome{}
	switch action.Kind {
	case podworker.CreateSandbox:
		outcome = p.createSandbox(object, action, now)
	case podworker.PullImage:
		if p.startPull(object, action, now) {
			return
		}
	case podworker.StartContainer:
		outcome = p.startContainer(object, action, now)
	case podworker.Announce:
		p.noteBackOff(action)
	case podworker.KillContainer:
		p.note(action.Container, corev1.EventTypeNormal, "Killing", action.Message)
		if c := p.container(action.ContainerID); c != nil {
			c.State, c.FinishedAt = podworker.Exited, whole(now)
		}
	case podworker.StopSandbox:
		for i := range p.runtime.Sandboxes {
			if p.runtime.Sandboxes[i].ID == action.SandboxID {
				p.runtime.Sandboxes[i].Ready = false
			}
		}
	case podworker.RemoveContainer:
		p.runtime.Containers = slices.DeleteFunc(p.runtime.Containers, func(c podworker.Container) bool {
			return c.ID == action.ContainerID
		})
	case podworker.RemoveSandbox:
		p.runtime.Sandboxes = slices.DeleteFunc(p.runtime.Sandboxes, func(s podworker.Sandbox) bool {
			return s.ID == action.SandboxID
		})
	}
	p.memory.Done(action, outcome, now)
}

func (p *pod) createSandbox(object *corev1.Pod, action podworker.Action, now time.Time) podworker.Outcome {
	sandbox := podworker.Sandbox{
		ID: fmt.Sprintf("%s-sandbox-%d", p.uid, action.Attempt), Attempt: action.Attempt, Ready: true,
		HostNetwork: object.Spec.HostNetwork, CreatedAt: now,
	}
	if !sandbox.HostNetwork {
		ip, err := p.takeAddress()
		if err != nil {
			return podworker.Outcome{Reason: "FailedCreatePodSandBox", Message: err.Error()}
		}
		sandbox.IPs = []string{ip}
	}
	p.runtime.Sandboxes = append(p.runtime.Sandboxes, sandbox)
	return podworker.Outcome{}
}

// startPull begins a pull and returns true, or false if the image is there.
func (p *pod) startPull(object *corev1.Pod, action podworker.Action, now time.Time) bool {
	image := p.imageOf(object, action.Container)
	behaviour := p.behaviour(object, action.Container)
	if behaviour.StartDelay == 0 && behaviour.PullError == "" {
		p.notePull(action.Container, image, podworker.Outcome{}, false)
		return false
	}
	p.note(action.Container, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", image))
	p.pulling, p.pulled = &action, now.Add(behaviour.StartDelay)
	if behaviour.StartDelay == 0 {
		p.endPull(object, now)
	}
	return true
}

// behaviour is how the image of a container behaves, with what ails the container.
func (p *pod) behaviour(object *corev1.Pod, container string) Image {
	image := p.imageOf(object, container)
	behaviour, ill := p.image(image), p.ails(object, container, 0)
	behaviour.PullError = cmp.Or(behaviour.PullError, ill.PullError)
	behaviour.StartDelay = max(behaviour.StartDelay, ill.PullTakes)
	if p.present != "" && p.present == image || p.hasImage(image) {
		behaviour.StartDelay = 0
	}
	if unprobed(podfacts.Container(object, container)) {
		behaviour.StartDelay += ill.ReadyAfter
		if ill.Unready != "" {
			behaviour.StartDelay = forever
		}
	}
	return behaviour
}

func (p *pod) endPull(object *corev1.Pod, now time.Time) {
	action, image, outcome := *p.pulling, p.imageOf(object, p.pulling.Container), podworker.Outcome{}
	p.pulling, p.pulled = nil, time.Time{}
	p.present = image
	if message := p.behaviour(object, action.Container).PullError; message != "" {
		p.present = ""
		outcome = podworker.Outcome{Reason: podworker.ReasonErrImagePull, Message: message}
	} else if fetchpod.Is(object) {
		p.keepImage(image)
	}
	p.notePull(action.Container, image, outcome, true)
	p.memory.Done(action, outcome, now)
}

// startContainer makes a running container; an init container that is no sidecar has done its work at once.
func (p *pod) startContainer(object *corev1.Pod, action podworker.Action, now time.Time) podworker.Outcome {
	spec := podfacts.Container(object, action.Container)
	ill := p.ails(object, action.Container, action.Attempt)
	if ill.StartError != "" {
		p.note(spec.Name, corev1.EventTypeNormal, "Created", "Created container: "+spec.Name)
		p.note(spec.Name, corev1.EventTypeWarning, "Failed", "Error: "+ill.StartError)
		return podworker.Outcome{Reason: podworker.ReasonRunContainerError, Message: ill.StartError}
	}
	container := podworker.Container{
		ID:   fmt.Sprintf("%s-%s-%d", p.uid, action.Container, action.Attempt),
		Name: action.Container, SandboxID: action.SandboxID, Attempt: action.Attempt, State: podworker.Running,
		SpecHash: podworker.ContainerHash(spec), Resources: spec.Resources.DeepCopy(),
		Image: spec.Image, ImageID: cmp.Or(p.imageID(spec.Image, now), "simulated/"+spec.Image), CreatedAt: now,
		StartedAt: whole(now), VolumeImages: p.volumeImages(object, now),
	}
	if action.Init && !podfacts.IsSidecar(spec) && !ill.Ends {
		container.State, container.FinishedAt = podworker.Exited, whole(now)
	}
	p.runtime.Containers = append(p.runtime.Containers, container)
	p.note(spec.Name, corev1.EventTypeNormal, "Created", "Created container: "+spec.Name)
	p.note(spec.Name, corev1.EventTypeNormal, "Started", "Started container "+spec.Name)
	return podworker.Outcome{}
}

// volumeImages are the digests of the images of the pod's volumes. All of its containers have the same, as on a node
// that makes them present once.
func (p *pod) volumeImages(object *corev1.Pod, now time.Time) map[string]string {
	for i := range object.Spec.Volumes {
		v := &object.Spec.Volumes[i]
		if v.Image == nil || p.volumes[v.Name] != "" {
			continue
		}
		if p.volumes == nil {
			p.volumes = map[string]string{}
		}
		p.volumes[v.Name] = cmp.Or(p.imageID(v.Image.Reference, now), "simulated/"+v.Image.Reference)
	}
	return p.volumes
}

func (p *pod) container(id string) *podworker.Container {
	for i := range p.runtime.Containers {
		if p.runtime.Containers[i].ID == id {
			return &p.runtime.Containers[i]
		}
	}
	return nil
}

// probes answers for every running container: all probes succeed once their initial delay is over. It also returns when
// the next one does.
func (p *pod) probes(object *corev1.Pod, now time.Time) (probes []podworker.Probe, next time.Time) {
	if object == nil {
		return nil, next
	}
	for i := range p.runtime.Containers {
		c := &p.runtime.Containers[i]
		spec := podfacts.Container(object, c.Name)
		if c.State != podworker.Running || spec == nil {
			continue
		}
		probe := podworker.Probe{Container: c.Name, ContainerID: c.ID, Known: true, Started: true, Ready: true}
		ill := p.ails(object, c.Name, c.Attempt)
		if spec.StartupProbe != nil {
			at := c.CreatedAt.Add(max(seconds(spec.StartupProbe.InitialDelaySeconds), ill.ReadyAfter))
			probe.Started = !now.Before(at)
			next = later(next, at, now)
		}
		if spec.ReadinessProbe != nil {
			at := c.CreatedAt.Add(max(seconds(spec.ReadinessProbe.InitialDelaySeconds), ill.ReadyAfter))
			probe.Ready = probe.Started && !now.Before(at)
			next = later(next, at, now)
		}
		if ill.Unready != "" && !unprobed(spec) {
			p.failProbes(&probe, spec, ill)
		}
		probes = append(probes, probe)
	}
	return probes, next
}

// whole drops what the API does not store, or every status would differ from the stored one.
func whole(at time.Time) time.Time { return at.Truncate(time.Second) }

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// later is the earlier of next and at, if at is still to come.
func later(next, at, now time.Time) time.Time {
	if !at.After(now) {
		return next
	}
	return earliest(next, at)
}

// earliest ignores zero times.
func earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, at := range times {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// restore makes the runtime hold what the pod's status says that it holds, for a simulator that starts again.
func (p *pod) restore(object *corev1.Pod) {
	sandboxID := p.uid + "-sandbox-0"
	for _, status := range slices.Concat(
		object.Status.InitContainerStatuses, object.Status.ContainerStatuses, object.Status.EphemeralContainerStatuses,
	) {
		spec := podfacts.Container(object, status.Name)
		_, id, ok := strings.Cut(status.ContainerID, "://")
		if !ok || spec == nil {
			continue
		}
		container := podworker.Container{
			ID: id, Name: status.Name, SandboxID: sandboxID, Attempt: uint32(status.RestartCount), Image: status.Image,
			ImageID: status.ImageID, VolumeImages: p.recallVolumes(&status),
		}
		if spec.Image == status.Image {
			container.SpecHash = podworker.ContainerHash(spec)
		}
		switch {
		case status.State.Running != nil:
			container.State, container.StartedAt = podworker.Running, status.State.Running.StartedAt.Time
		case status.State.Terminated != nil:
			end := status.State.Terminated
			container.State = podworker.Exited
			container.StartedAt, container.FinishedAt = end.StartedAt.Time, end.FinishedAt.Time
			container.ExitCode, container.Reason, container.Message = end.ExitCode, end.Reason, end.Message
		default:
			continue
		}
		container.CreatedAt = container.StartedAt
		p.runtime.Containers = append(p.runtime.Containers, container)
	}
	if len(p.runtime.Containers) == 0 {
		return
	}
	sandbox := podworker.Sandbox{ID: sandboxID, Ready: true, HostNetwork: object.Spec.HostNetwork}
	if !sandbox.HostNetwork {
		for _, ip := range object.Status.PodIPs {
			sandbox.IPs = append(sandbox.IPs, ip.IP)
		}
	}
	p.runtime.Sandboxes = []podworker.Sandbox{sandbox}
}

// recallVolumes takes the digests of image volumes from the status of a container.
func (p *pod) recallVolumes(status *corev1.ContainerStatus) map[string]string {
	for i := range status.VolumeMounts {
		m := &status.VolumeMounts[i]
		if m.VolumeStatus == nil || m.VolumeStatus.Image == nil {
			continue
		}
		if p.volumes == nil {
			p.volumes = map[string]string{}
		}
		p.volumes[m.Name] = m.VolumeStatus.Image.ImageRef
	}
	return p.volumes
}

func (p *pod) imageOf(object *corev1.Pod, container string) string {
	if spec := podfacts.Container(object, container); spec != nil {
		return spec.Image
	}
	return ""
}
