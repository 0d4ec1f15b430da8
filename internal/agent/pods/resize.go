package pods

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/podadmission"
	"github.com/everynode/everynode/internal/agent/podworker"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// allocate settles how much CPU and memory the pod has that the API shows now.
func (w *worker) allocate() {
	if w.asked == nil || w.in.Gone {
		return
	}
	was := w.in.Pending
	w.in.Pod, w.in.Pending = w.home.resize(w.asked)
	if p := w.in.Pending; p.Reason != "" && p != was {
		w.cfg.Events.Pod(w.asked, corev1.EventTypeWarning, "Resize"+p.Reason, p.Message)
	}
}

// resize gives a pod that has room on the node the CPU and memory that it asks for, if there is room for that. It
// returns the pod with what it has, and why that is not what it asks for.
func (p *Manager) resize(asked *corev1.Pod) (*corev1.Pod, podworker.Pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.resizes, asked.UID)
	given, ok := p.admitted[asked.UID]
	if !ok {
		return asked, podworker.Pending{}
	}
	if podadmission.SameSize(asked, given) {
		p.admitted[asked.UID] = asked
		if podfacts.Resizing(given) && !podfacts.Resizing(asked) {
			p.retryResizes() // what it asked for less is free only now
		}
		return asked, podworker.Pending{}
	}
	var others []*corev1.Pod
	for uid, other := range p.admitted {
		if uid != asked.UID {
			others = append(others, other)
		}
	}
	why := podworker.Pending{}
	if node := p.cfg.Node(); node != nil {
		why = podadmission.NoRoom(asked, given, node, others)
	}
	if why.Reason != "" {
		if why.Reason == corev1.PodReasonDeferred {
			p.resizes[asked.UID] = true
		}
		return podadmission.WithSize(asked, given), why
	}
	p.admitted[asked.UID] = asked
	p.retryResizes()
	return asked, podworker.Pending{}
}

// retryResizes has pods that wait for room ask again. The caller holds mu.
func (p *Manager) retryResizes() {
	for uid := range p.resizes {
		if w, ok := p.workers[uid]; ok {
			w.roomFreed()
		}
	}
}

func (w *worker) roomFreed() {
	w.mailbox.Lock()
	w.freed = true
	w.mailbox.Unlock()
	w.poke()
}

// resize carries out one step of a change of the pod's CPU and memory.
func (t task) resize(ctx context.Context) podworker.Outcome {
	var err error
	switch t.action.Kind {
	case podworker.WidenPod:
		err = t.cfg.Runtime.WidenPod(t.pod)
	case podworker.NarrowPod:
		err = t.cfg.Runtime.NarrowPod(t.pod)
	default:
		err = t.cfg.Runtime.ResizeContainer(ctx, t.pod, t.container(), t.action.ContainerID)
	}
	switch {
	case err == nil && t.action.Kind == podworker.NarrowPod:
		t.cfg.Events.Pod(t.pod, corev1.EventTypeNormal, "ResizeCompleted", "Pod resize completed")
	case err != nil && ctx.Err() == nil:
		t.cfg.Events.Pod(t.pod, corev1.EventTypeWarning, "ResizeError", err.Error())
	}
	if err != nil {
		return failed(podworker.ResizeFailed, err)
	}
	return podworker.Outcome{}
}
