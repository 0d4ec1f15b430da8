package pods

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cri/pleg"
	"github.com/everynode/everynode/internal/agent/remember"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// alonePatience is how long a node that starts waits for the API server, before it starts the pods that it remembers.
const alonePatience = 5 * time.Second

// alone is what pods knows from an earlier run of the agent.
type alone struct {
	// recalled are the pods of that run.
	recalled map[types.UID]remember.Pod
	// unseen are those of them that the API did not show yet.
	unseen map[types.UID]*corev1.Pod
	// since is when the runtime was read first.
	since time.Time
}

// Recall tells p, before anything else, what an earlier run knew.
func (p *Manager) Recall(known []remember.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alone.recalled, p.alone.unseen = map[types.UID]remember.Pod{}, map[types.UID]*corev1.Pod{}
	for _, pod := range known {
		p.alone.recalled[pod.Pod.UID] = pod
		p.alone.unseen[pod.Pod.UID] = pod.Pod
	}
}

// isAlone says whether the API server was waited for long enough, and there is something to begin with. The caller
// holds mu.
func (p *Manager) isAlone() bool {
	return !p.apiRead && len(p.alone.recalled) > 0 && p.cfg.Clock.Since(p.alone.since) >= alonePatience
}

// addRecalled has the pods start that are remembered and that the API, as far as it answered, did not show. They had
// room. The caller holds mu.
func (p *Manager) addRecalled(running []pleg.PodRef) {
	klog.FromContext(p.ctx).Info("The API server does not answer; starting the pods as they were last", "pods",
		len(p.alone.unseen), "inTheRuntime", len(running))
	for uid, pod := range p.alone.unseen {
		p.desired[uid] = pod
		if !podfacts.IsTerminal(pod) && p.alone.recalled[uid].Ended == nil {
			p.admitted[uid] = pod
		}
	}
}

// leaveUnseen ends the pods that are remembered and that the API does not have any more. The caller holds mu.
func (p *Manager) leaveUnseen() {
	for _, pod := range p.alone.unseen {
		p.gone(pod)
	}
	p.alone.unseen = nil
}

// recallEnd tells the worker how its pod ended in an earlier run: the API may not know, and nothing of it may be left.
// The caller holds mu.
func (p *Manager) recallEnd(w *worker) {
	if end := p.alone.recalled[w.uid].Ended; end != nil {
		w.memory.Recall(end)
		w.status = *end
	}
}
