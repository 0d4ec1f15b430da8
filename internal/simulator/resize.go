package simulator

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/podadmission"
	"github.com/everynode/everynode/internal/agent/podworker"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// roomAgain is when a pod that waits for room asks its node again.
const roomAgain = 5 * time.Second

// allocate gives a pod the cpu and memory that it asks for, if its node has room for more. It returns the pod with what
// it has, and why that is not what it asks for.
func (p *pods) allocate(known *entry, asked *corev1.Pod, host *node) (*corev1.Pod, podworker.Pending) {
	on, refusal := p.nodes.objectOf(host), p.nodes.noResize(host)
	p.mu.Lock()
	defer p.mu.Unlock()
	if known.given == nil {
		known.given = podadmission.AsReported(asked)
	}
	if on == nil || podadmission.SameSize(asked, known.given) {
		known.given = asked
		return asked, podworker.Pending{}
	}
	if refusal != "" {
		why := podworker.Pending{Reason: corev1.PodReasonInfeasible, Message: refusal}
		return podadmission.WithSize(asked, known.given), why
	}
	var others []*corev1.Pod
	for _, other := range p.byUID {
		onIt := other != known && other.given != nil && other.given.Spec.NodeName == asked.Spec.NodeName
		if onIt && !podfacts.IsTerminal(other.object) {
			others = append(others, other.given)
		}
	}
	if why := podadmission.NoRoom(asked, known.given, on, others); why.Reason != "" {
		return podadmission.WithSize(asked, known.given), why
	}
	known.given = asked
	return asked, podworker.Pending{}
}
