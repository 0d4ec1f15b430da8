package podworker

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/untrusted/plaintext"
)

const runtimeScheme = "containerd://"

// containers returns the statuses of the containers in the order of the spec.
func (b *statusBuilder) containers(specs []corev1.Container, prev []corev1.ContainerStatus,
	init bool) []corev1.ContainerStatus {
	if len(specs) == 0 {
		return nil
	}
	out := make([]corev1.ContainerStatus, len(specs))
	for i := range specs {
		b.container(&out[i], &specs[i], prevStatus(prev, specs[i].Name), init)
	}
	return out
}

// ephemeral returns the statuses of the containers that were added to the running pod. They are never ready: the pod
// does not depend on them.
func (b *statusBuilder) ephemeral() []corev1.ContainerStatus {
	var specs []corev1.Container
	for i := range b.in.Pod.Spec.EphemeralContainers {
		specs = append(specs, *podfacts.Ephemeral(&b.in.Pod.Spec.EphemeralContainers[i]))
	}
	out := b.containers(specs, b.prev.EphemeralContainerStatuses, false)
	for i := range out {
		out[i].Ready, out[i].Started = false, nil
		if s := &out[i]; s.State.Waiting != nil && s.LastTerminationState.Terminated != nil {
			// The runtime forgot it, and it does not run again.
			s.State, s.LastTerminationState = s.LastTerminationState, corev1.ContainerState{}
		}
	}
	return out
}

// mountStatuses says how the container's volumes are mounted.
func mountStatuses(spec *corev1.Container, last *Container) []corev1.VolumeMountStatus {
	var out []corev1.VolumeMountStatus
	for _, m := range spec.VolumeMounts {
		status := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			recursive := corev1.RecursiveReadOnlyDisabled
			// they may be relative
			if slices.Contains(last.ReadOnlyBelow, m.MountPath) ||
				slices.Contains(last.ReadOnlyBelow, path.Join("/", m.MountPath)) {
				recursive = corev1.RecursiveReadOnlyEnabled
			}
			status.RecursiveReadOnly = &recursive
		}
		// The API takes none that is longer: such a status would never be stored.
		if of := last.VolumeImages[m.Name]; of != "" && len(of) <= podfacts.MaxVolumeImageRef {
			status.VolumeStatus = &corev1.VolumeStatus{Image: &corev1.ImageVolumeStatus{ImageRef: of}}
		}
		out = append(out, status)
	}
	return out
}

func prevStatus(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

func (b *statusBuilder) container(
	s *corev1.ContainerStatus, spec *corev1.Container, prev *corev1.ContainerStatus, init bool,
) {
	s.Name, s.Image = spec.Name, spec.Image
	no := false
	s.Started = &no
	last := b.in.Runtime.newest(spec.Name)
	if last == nil {
		b.absent(s, spec, prev)
		return
	}
	s.RestartCount, s.ContainerID = int32(last.Attempt), runtimeScheme+last.ID
	s.VolumeMounts, s.Resources = mountStatuses(spec, last), b.in.Memory.sizes.of(spec, last)
	s.AllocatedResources = spec.Resources.Requests.DeepCopy()
	s.ImageID, s.User, s.StopSignal = last.ImageID, last.User, last.StopSignal
	if last.Image != "" {
		s.Image = last.Image
	}
	if prev != nil && prev.RestartCount > s.RestartCount {
		s.RestartCount = prev.RestartCount
	}
	if dead := b.in.Runtime.lastExited(spec.Name, last); dead != nil {
		s.LastTerminationState.Terminated = terminated(dead)
	} else if prev != nil && prev.ContainerID != s.ContainerID && prev.State.Terminated != nil {
		s.LastTerminationState = prev.State
	} else if prev != nil {
		s.LastTerminationState = prev.LastTerminationState
	}
	switch last.State {
	case Running:
		b.running(s, spec, last, prev, init)
	case Exited:
		b.exited(s, spec, last, init)
	case Created:
		s.State.Waiting = b.waitingFor(spec, nil)
	default:
		s.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown",
			Message: "The container could not be located when the pod was terminated", ContainerID: s.ContainerID}
	}
}

// absent is the status of a container that the runtime does not have: not made yet, or already removed.
func (b *statusBuilder) absent(s *corev1.ContainerStatus, spec *corev1.Container, prev *corev1.ContainerStatus) {
	if prev == nil || prev.ContainerID == "" {
		s.State.Waiting = b.waitingFor(spec, nil)
		return
	}
	s.RestartCount, s.ContainerID, s.ImageID, s.Image = prev.RestartCount, prev.ContainerID, prev.ImageID, prev.Image
	s.VolumeMounts, s.LastTerminationState = prev.VolumeMounts, prev.LastTerminationState
	switch {
	case prev.State.Terminated != nil:
		s.State = prev.State
	case b.in.terminating() || ended(b.prev):
		s.State.Terminated = lost(prev)
	default:
		// It ran, was lost together with the runtime's record of it, and will run again.
		s.State.Waiting = b.waitingFor(spec, nil)
		if prev.State.Running != nil {
			s.LastTerminationState.Terminated = lost(prev)
		}
	}
}

func lost(prev *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown", ContainerID: prev.ContainerID,
		Message: "The container could not be located when the pod was deleted.  The container used to be Running"}
}

func (b *statusBuilder) running(s *corev1.ContainerStatus, spec *corev1.Container, last *Container,
	prev *corev1.ContainerStatus, init bool) {
	s.State.Running = &corev1.ContainerStateRunning{StartedAt: seconds(last.StartedAt)}
	if init && !podfacts.IsSidecar(spec) {
		yes := true
		s.Started = &yes
		return
	}
	s.Started, s.Ready = b.health(s, spec, last, prev)
}

// health says whether a container that runs has started, and whether it is ready.
func (b *statusBuilder) health(s *corev1.ContainerStatus, spec *corev1.Container, last *Container,
	prev *corev1.ContainerStatus) (isStarted *bool, ready bool) {
	p := b.in.probe(spec.Name, last.ID)
	yes := started(spec, p)
	switch {
	case p != nil && p.Known:
		ready = yes && (spec.ReadinessProbe == nil || p.Ready)
	case prev != nil && prev.ContainerID == s.ContainerID && prev.State.Running != nil:
		// The agent restarted and has no result yet: what was last reported still holds.
		yes = yes || (prev.Started != nil && *prev.Started)
		ready = yes && (spec.ReadinessProbe == nil || prev.Ready)
	default:
		ready = yes && spec.ReadinessProbe == nil
	}
	return &yes, ready
}

func (b *statusBuilder) exited(s *corev1.ContainerStatus, spec *corev1.Container, last *Container, init bool) {
	s.Ready = init && !podfacts.IsSidecar(spec) && last.ExitCode == 0
	if waiting := b.restartWaits(spec, last, init); waiting != nil {
		s.State.Waiting = waiting
		s.LastTerminationState.Terminated = terminated(last)
		return
	}
	s.State.Terminated = terminated(last)
}

// restartWaits is what an exited container waits for before it runs again; nil if it will not, or waits for nothing.
func (b *statusBuilder) restartWaits(spec *corev1.Container, last *Container, init bool) *corev1.ContainerStateWaiting {
	done := init && !podfacts.IsSidecar(spec) && last.ExitCode == 0
	if b.in.terminating() || done || !shouldRestart(b.in.Pod, spec, last) {
		return nil
	}
	if _, done := verdict(b.in); done {
		return nil
	}
	if m := b.in.Memory.find(spec.Name); m == nil {
		return nil
	}
	w := b.waitingFor(spec, last)
	if w.Reason == ReasonContainerCreating || w.Reason == ReasonPodInitializing {
		return nil
	}
	return w
}

// waitingFor says what a container that does not run waits for. Last is the one that exited before it, if any.
func (b *statusBuilder) waitingFor(spec *corev1.Container, last *Container) *corev1.ContainerStateWaiting {
	m := b.in.Memory.find(spec.Name)
	switch {
	case m == nil:
	case last != nil && !m.starting && !specChanged(spec, last) &&
		b.in.Now.Before(m.restart.until(last.FinishedAt, b.in.Now)):
		return &corev1.ContainerStateWaiting{Reason: ReasonCrashLoopBackOff,
			Message: restartBackOffText(spec.Name, m.restart.delay, b.in.Pod)}
	case m.waiting.Reason == ReasonErrImagePull && !b.in.Now.Before(m.pull.updated.Add(pullErrorShown)):
		return &corev1.ContainerStateWaiting{Reason: ReasonImagePullBackOff,
			Message: pullBackOffText(spec.Image, m.waiting.Message)}
	case m.waiting.Failed():
		return &corev1.ContainerStateWaiting{Reason: m.waiting.Reason, Message: m.waiting.Message}
	}
	if len(b.in.Pod.Spec.InitContainers) > 0 {
		return &corev1.ContainerStateWaiting{Reason: ReasonPodInitializing}
	}
	return &corev1.ContainerStateWaiting{Reason: ReasonContainerCreating}
}

func terminated(c *Container) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message,
		StartedAt: seconds(c.StartedAt), FinishedAt: seconds(c.FinishedAt),
		ContainerID: runtimeScheme + c.ID}
	if t.Reason == "" {
		t.Reason = "Error"
		if c.ExitCode == 0 {
			t.Reason = "Completed"
		}
	}
	return t
}

// maxMessages is how long the last words of all containers of a pod may be together, in bytes: they are kept in its
// status.
const maxMessages = 12 * 1024

// boundMessages cuts each container's last words to its share. What it cuts it copies first: a state may be that of the
// status before, which others read.
func boundMessages(lists ...[]corev1.ContainerStatus) {
	count := 0
	for _, list := range lists {
		count += len(list)
	}
	for _, list := range lists {
		for i := range list {
			for _, state := range []*corev1.ContainerState{&list[i].State, &list[i].LastTerminationState} {
				t := state.Terminated
				if t == nil || len(t.Message) <= maxMessages/count {
					continue
				}
				bounded := *t
				bounded.Message = plaintext.Cut(t.Message, maxMessages/count, "")
				state.Terminated = &bounded
			}
		}
	}
}
