package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/probes"
)

// Probes is probes.Manager in the words of podworker.
type Probes struct {
	*probes.Manager
	// Stopped is told of pods that are not probed any more; nil for nobody.
	Stopped func(uid types.UID)
}

var _ Prober = Probes{}

// Start begins to probe a running container.
func (p Probes) Start(pod *corev1.Pod, podIP, container, containerID string, startedAt time.Time) {
	p.Add(pod, podIP, container, containerID, startedAt)
}

// Stop ends the probing of the pod.
func (p Probes) Stop(uid types.UID) {
	p.Remove(uid)
	if p.Stopped != nil {
		p.Stopped(uid)
	}
}

// Results is what the probes say now.
func (p Probes) Results(uid types.UID) []podworker.Probe {
	states := p.State(uid)
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
