package podworker

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/fit/hostport"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// ending is how a pod ended.
type ending struct {
	phase           corev1.PodPhase
	reason, message string
}

// verdict says whether the pod ran to its end, and how. A pod that the API calls ended stays so.
func verdict(in *Input) (ending, bool) {
	if r := in.Memory.rejected; r.Reason != "" {
		return ending{corev1.PodFailed, r.Reason, r.Message}, true
	}
	if in.Pod == nil {
		return ending{}, false
	}
	if s := &in.Pod.Status; ended(s) {
		return ending{s.Phase, s.Reason, s.Message}, true
	}
	if e := in.Memory.recalled; e.phase != "" {
		return e, true
	}
	if t := in.Memory.terminated; t.Reason != "" {
		return ending{corev1.PodFailed, t.Reason, t.Message}, true
	}
	if deadline, ok := activeDeadline(in); ok && !in.Now.Before(deadline) {
		return ending{corev1.PodFailed, "DeadlineExceeded",
			"Pod was active on the node longer than the specified deadline"}, true
	}
	if initFailed(in) {
		return ending{phase: corev1.PodFailed}, true
	}
	return containersEnded(in)
}

func activeDeadline(in *Input) (time.Time, bool) {
	if in.Pod.Spec.ActiveDeadlineSeconds == nil || in.Pod.Status.StartTime == nil {
		return time.Time{}, false
	}
	return in.Pod.Status.StartTime.Add(time.Duration(*in.Pod.Spec.ActiveDeadlineSeconds) * time.Second), true
}

// initFailed says whether an init container failed for good.
func initFailed(in *Input) bool {
	if len(in.Pod.Spec.InitContainers) == 0 || initialized(in.Pod, in.Runtime, in.Runtime.sandbox()) {
		return false
	}
	for i := range in.Pod.Spec.InitContainers {
		spec := &in.Pod.Spec.InitContainers[i]
		last := in.Runtime.newest(spec.Name)
		if last != nil && last.State == Exited && last.ExitCode != 0 && !shouldRestart(in.Pod, spec, last) {
			return true
		}
	}
	return false
}

// containersEnded says whether every app container exited and none is to run again.
func containersEnded(in *Input) (ending, bool) {
	e := ending{phase: corev1.PodSucceeded}
	for i := range in.Pod.Spec.Containers {
		spec := &in.Pod.Spec.Containers[i]
		last := in.Runtime.newest(spec.Name)
		if last == nil || last.State != Exited || shouldRestart(in.Pod, spec, last) {
			return ending{}, false
		}
		if last.ExitCode != 0 {
			e.phase = corev1.PodFailed
		}
	}
	return e, len(in.Pod.Spec.Containers) > 0
}

// phaseOf returns the phase of a pod from the statuses of its containers.
func phaseOf(in *Input, status *corev1.PodStatus) ending {
	if e, done := verdict(in); done && !stopping(in) {
		return e
	}
	running, waiting, stopped, failed := count(status.ContainerStatuses)
	switch {
	case in.terminating() && !inUse(in):
		if failed > 0 || stopped < len(in.Pod.Spec.Containers) {
			return ending{phase: corev1.PodFailed}
		}
		return ending{phase: corev1.PodSucceeded}
	case !initializedByStatus(in.Pod, status) || waiting > 0:
		return ending{phase: corev1.PodPending}
	case running+stopped > 0:
		return ending{phase: corev1.PodRunning}
	default:
		return ending{phase: corev1.PodPending}
	}
}

// stopping says whether a pod that is to end has something that others are given once it has ended. It has not ended
// before, so that nobody starts another one in its place too soon. One that was reported to have ended stays so.
func stopping(in *Input) bool {
	return inUse(in) && !in.Memory.Ended() && !ended(&in.Pod.Status)
}

// inUse reports whether the pod uses the node's room, ports or devices, or may soon.
func inUse(in *Input) bool {
	return in.Runtime.anyAlive() || in.Memory.setUp == StartContainer || mayStart(in) || keepsPorts(in) || keepsClaims(in)
}

// mayStart reports whether a start may come through that nobody waits for any more: the agent that began it was killed,
// or was told of an error. No container starts in a sandbox that was stopped.
func mayStart(in *Input) bool {
	return slices.ContainsFunc(in.Runtime.Containers, func(c Container) bool {
		return c.State == Created && slices.ContainsFunc(in.Runtime.Sandboxes, func(s Sandbox) bool {
			return s.ID == c.SandboxID && in.open(&s)
		})
	})
}

// keepsPorts reports whether a sandbox has ports of the node, or may soon: they lead to it until it is stopped.
func keepsPorts(in *Input) bool {
	if in.Pod.Spec.HostNetwork || len(hostport.Of(&in.Pod.Spec)) == 0 {
		return false
	}
	return in.Memory.setUp == CreateSandbox ||
		slices.ContainsFunc(in.Runtime.Sandboxes, func(s Sandbox) bool { return in.open(&s) })
}

// keepsClaims reports whether drivers may have devices prepared for the pod. Other claims get them once it has ended.
func keepsClaims(in *Input) bool {
	return len(in.Pod.Spec.ResourceClaims) > 0 && !in.Memory.volumesDown
}

// open reports whether the sandbox is there and was not stopped.
func (in *Input) open(s *Sandbox) bool { return s.Ready && !in.Memory.stopped(s.ID) }

// count sorts container statuses; one that waits for a restart counts as stopped.
func count(statuses []corev1.ContainerStatus) (running, waiting, stopped, failed int) {
	for i := range statuses {
		s := &statuses[i]
		switch {
		case s.State.Running != nil:
			running++
		case s.State.Terminated != nil:
			stopped++
			if s.State.Terminated.ExitCode != 0 {
				failed++
			}
		case s.LastTerminationState.Terminated != nil:
			stopped++
			failed++
		default:
			waiting++
		}
	}
	return running, waiting, stopped, failed
}

// initializedByStatus says whether all init containers did their work, as far as the statuses tell.
func initializedByStatus(pod *corev1.Pod, status *corev1.PodStatus) bool {
	for i := range status.ContainerStatuses {
		s := &status.ContainerStatuses[i]
		if s.State.Running != nil || s.LastTerminationState.Terminated != nil || s.State.Terminated != nil {
			return true
		}
	}
	return len(unfinishedInit(pod, status)) == 0
}

// unfinishedInit names the init containers that did not do their work yet.
func unfinishedInit(pod *corev1.Pod, status *corev1.PodStatus) []string {
	var names []string
	for i := range pod.Spec.InitContainers {
		spec := &pod.Spec.InitContainers[i]
		if i >= len(status.InitContainerStatuses) {
			names = append(names, spec.Name)
			continue
		}
		s := &status.InitContainerStatuses[i]
		done := s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		if podfacts.IsSidecar(spec) {
			done = s.Started != nil && *s.Started
		}
		if !done {
			names = append(names, spec.Name)
		}
	}
	return names
}
