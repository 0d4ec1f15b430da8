package pods

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/startorder"
)

// waitsForDaemons is the reason of the event that says for which daemons a pod waits.
const waitsForDaemons = "WaitsForDaemons"

// orderStart has the pods that are bound to the node start in the order of their groups. The caller holds mu.
func (p *Manager) orderStart(bound []*corev1.Pod) {
	if !p.ordered {
		return
	}
	bound = slices.DeleteFunc(slices.Clone(bound), func(pod *corev1.Pod) bool {
		return p.alone.recalled[pod.UID].Ended != nil
	})
	p.order = startorder.New(bound, p.cfg.Clock.Now())
}

func (p *Manager) holds(uid types.UID) (why string, again time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Clock.Now()
	if p.order.Look(now) {
		p.nextTurn()
	}
	return p.order.Holds(uid, now), p.order.Next()
}

func (p *Manager) reported(uid types.UID, status *corev1.PodStatus) {
	ready := slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.order.Ready(uid, ready, p.cfg.Clock.Now()) {
		p.nextTurn()
	}
}

// leavesOrder has the pod wait for nobody, and nobody for it. The caller holds mu.
func (p *Manager) leavesOrder(uid types.UID) {
	if p.order.Drop(uid, p.cfg.Clock.Now()) {
		p.nextTurn()
	}
}

// nextTurn has the workers see whether it is their pods' turn. The caller holds mu.
func (p *Manager) nextTurn() {
	for _, w := range p.workers {
		w.poke()
	}
}

// awaitsTurn says when to see again whether the pod still waits for daemons that start before it; zero if nothing holds
// it.
func (w *worker) awaitsTurn() time.Time {
	why, again := w.home.holds(w.uid)
	w.in.Held = why
	if why == "" {
		return time.Time{}
	}
	if why != w.told {
		w.told = why
		w.cfg.Events.Pod(w.in.Pod, corev1.EventTypeNormal, waitsForDaemons, why)
	}
	return again
}
