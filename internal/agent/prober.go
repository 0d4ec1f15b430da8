package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/probes"
)

// prober is probes.Manager in the words of podworker.
type prober struct {
	manager *probes.Manager
	// stopped is told of pods that are not probed any more.
	stopped func(uid types.UID)
}

// Start begins to probe a running container.
func (p prober) Start(pod *corev1.Pod, podIP, container, containerID string, startedAt time.Time) {
	p.manager.Add(pod, podIP, container, containerID, startedAt)
}

// KeepReadiness ends all but the readiness probes of the pod.
func (p prober) KeepReadiness(uid types.UID) { p.manager.KeepReadiness(uid) }

// Stop ends the probing of the pod.
func (p prober) Stop(uid types.UID) {
	p.manager.Remove(uid)
	p.stopped(uid)
}

// Results is what the probes say now.
func (p prober) Results(uid types.UID) []podworker.Probe {
	states := p.manager.State(uid)
	if len(states) == 0 {
		return nil
	}
	out := make([]podworker.Probe, 0, len(states))
	for name, s := range states {
		out = append(out, podworker.Probe{
			Container: name, ContainerID: s.ContainerID, Known: true,
			Started: s.Started, Ready: s.Ready, LivenessFailed: s.LivenessFailed, Message: s.Message,
			TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds,
		})
	}
	return out
}
