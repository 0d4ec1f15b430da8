package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/everynode/everynode/internal/agent/podworker"
	podfacts "github.com/everynode/everynode/internal/pod"
)

// allocate settles how much CPU and memory the pod has that the API shows now.
func (w *worker) allocate() {
	if w.asked == nil || w.in.Gone {
		return
	}
	was := w.in.Pending
	w.in.Pod, w.in.Pending = w.resize(w.asked)
	if p := w.in.Pending; p.Reason != "" && p != was {
		w.events.pod(w.asked, corev1.EventTypeWarning, "Resize"+p.Reason, p.Message)
	}
}

// resize gives a pod that has room on the node the CPU and memory that it asks for, if there is room for that. It returns the pod
// with what it has, and why that is not what it asks for.
func (p *pods) resize(asked *corev1.Pod) (*corev1.Pod, podworker.Pending) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.resizes, asked.UID)
	given, ok := p.admitted[asked.UID]
	if !ok {
		return asked, podworker.Pending{}
	}
	if sameSize(asked, given) {
		p.admitted[asked.UID] = asked
		return asked, podworker.Pending{}
	}
	var others []*corev1.Pod
	for uid, other := range p.admitted {
		if uid != asked.UID {
			others = append(others, other)
		}
	}
	why := podworker.Pending{}
	if node := p.node(); node != nil {
		why = noRoom(asked, given, node, others)
	}
	if why.Reason != "" {
		if why.Reason == corev1.PodReasonDeferred {
			p.resizes[asked.UID] = true
		}
		return withSize(asked, given), why
	}
	p.admitted[asked.UID] = asked
	p.retryResizes()
	return asked, podworker.Pending{}
}

// retryResizes has pods that wait for room ask again. The caller holds mu.
func (p *pods) retryResizes() {
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

// noRoom says why a pod cannot have the CPU and memory that it asks for beside others.
func noRoom(asked, given *corev1.Pod, node *corev1.Node, others []*corev1.Pod) podworker.Pending {
	want, has := podfacts.Requests(asked), podfacts.Requests(given)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		more, before, limit := want[name], has[name], node.Status.Allocatable[name]
		if more.Cmp(before) > 0 && more.Cmp(limit) > 0 {
			return podworker.Pending{Reason: corev1.PodReasonInfeasible, Message: fmt.Sprintf(
				"Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, amount(name, more), amount(name, limit))}
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		more, before, limit := want[name], has[name], node.Status.Allocatable[name]
		if more.Cmp(before) <= 0 {
			continue
		}
		var used resource.Quantity
		for _, other := range others {
			used.Add(podfacts.Requests(other)[name])
		}
		left := limit.DeepCopy()
		left.Sub(used)
		if more.Cmp(left) > 0 {
			return podworker.Pending{Reason: corev1.PodReasonDeferred, Message: fmt.Sprintf(
				"Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, amount(name, more), amount(name, used), amount(name, limit))}
		}
	}
	return podworker.Pending{}
}

// sameSize says whether the containers of both pods ask for the same CPU and memory.
func sameSize(a, b *corev1.Pod) bool {
	theirs := podfacts.Containers(b)
	for i, c := range podfacts.Containers(a) {
		if i < len(theirs) && !podfacts.SameCompute(&c.Resources, &theirs[i].Resources) {
			return false
		}
	}
	return true
}

// withSize is the pod with the containers' resources of another of its versions.
func withSize(pod, of *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	for _, lists := range [][2][]corev1.Container{{out.Spec.Containers, of.Spec.Containers}, {out.Spec.InitContainers, of.Spec.InitContainers}} {
		for i := range lists[0] {
			if i < len(lists[1]) {
				lists[0][i].Resources = lists[1][i].Resources
			}
		}
	}
	return out
}

// asReported is the pod with the resources that the node last reported to have given it: those of before a restart of the agent.
func asReported(pod *corev1.Pod) *corev1.Pod {
	if !podfacts.Resizing(pod) {
		return pod
	}
	out := pod.DeepCopy()
	for _, list := range [][]corev1.Container{out.Spec.Containers, out.Spec.InitContainers} {
		for i := range list {
			if s := podfacts.ContainerStatus(&pod.Status, list[i].Name); s != nil && s.AllocatedResources != nil {
				list[i].Resources.Requests = s.AllocatedResources
				if s.Resources != nil {
					list[i].Resources.Limits = s.Resources.Limits
				}
			}
		}
	}
	return out
}

// resize carries out one step of a change of the pod's CPU and memory.
func (t task) resize(ctx context.Context) podworker.Outcome {
	var err error
	switch t.action.Kind {
	case podworker.WidenPod:
		err = t.runtime.WidenPod(t.pod)
	case podworker.NarrowPod:
		err = t.runtime.NarrowPod(t.pod)
	default:
		err = t.runtime.ResizeContainer(ctx, t.pod, t.container(), t.action.ContainerID)
	}
	switch {
	case err == nil && t.action.Kind == podworker.NarrowPod:
		t.events.pod(t.pod, corev1.EventTypeNormal, "ResizeCompleted", "Pod resize completed")
	case err != nil && ctx.Err() == nil:
		t.events.pod(t.pod, corev1.EventTypeWarning, "ResizeError", err.Error())
	}
	if err != nil {
		return failed(podworker.ResizeFailed, err)
	}
	return podworker.Outcome{}
}
