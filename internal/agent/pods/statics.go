package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cri/pleg"
	"github.com/everynode/everynode/internal/agent/staticpods"
)

// statics are the static pods of a node, as far as pods hands them to workers. They need the runtime, and not the API.
type statics struct {
	// awaited says that the folder was not read yet: until then nobody knows which static pods are wanted.
	awaited bool
	// begun says that those that ran already were looked at.
	begun bool
	// wanted are those that have a file, leaving those that had one and have a worker still.
	wanted, leaving map[types.UID]*corev1.Pod
}

// SetStatics says which static pods there are now.
func (p *Manager) SetStatics(all []*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := make(map[types.UID]*corev1.Pod, len(all))
	for _, pod := range all {
		wanted[pod.UID] = pod
	}
	for uid, pod := range p.statics.wanted {
		if w, ok := p.workers[uid]; ok && wanted[uid] == nil {
			p.statics.leaving[uid] = pod
			w.setGone(pod)
		}
	}
	p.statics.wanted, p.statics.awaited = wanted, false
	p.startStatics()
}

// startStatics makes workers for the static pods that have none, once the runtime was read. A pod waits until what had
// its name before has left the node. The caller holds mu.
func (p *Manager) startStatics() {
	if !p.runtimeRead || p.statics.awaited || p.shuttingDown {
		return
	}
	first := !p.statics.begun
	if first {
		p.statics.begun = true
		p.removeStaleStatics()
	}
	waiting := make([]*corev1.Pod, 0, len(p.statics.wanted))
	for uid, pod := range p.statics.wanted {
		if _, ok := p.workers[uid]; !ok && !p.nameTaken(pod) {
			waiting = append(waiting, pod)
		}
	}
	slices.SortFunc(waiting, func(a, b *corev1.Pod) int { return compareNames(a, b) })
	for _, pod := range waiting {
		// Later lists may be from before the end of one that had the same manifest.
		if first && slices.ContainsFunc(p.listed, func(ref pleg.PodRef) bool { return ref.UID == pod.UID }) {
			p.admitted[pod.UID] = pod
		}
		p.workerFor(pod.UID).setPod(pod)
	}
	if p.cfg.StaticsChanged != nil {
		p.cfg.StaticsChanged()
	}
}

// removeStaleStatics ends the static pods in the runtime whose file was changed or removed while no agent ran.
func (p *Manager) removeStaleStatics() {
	for _, ref := range p.listed {
		if !staticpods.IsUID(ref.UID) || p.statics.wanted[ref.UID] != nil {
			continue
		}
		klog.FromContext(p.ctx).Info("Found a static pod whose manifest is gone, removing it", "pod",
			klog.KRef(ref.Namespace, ref.Name), "podUID", ref.UID)
		p.statics.leaving[ref.UID] = namedPod(ref)
		p.workerFor(ref.UID).setGone(nil)
	}
}

func namedPod(ref pleg.PodRef) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.UID, pod.Namespace, pod.Name = ref.UID, ref.Namespace, ref.Name
	return pod
}

// nameTaken says whether a static pod of the name is still leaving.
func (p *Manager) nameTaken(pod *corev1.Pod) bool {
	for _, other := range p.statics.leaving {
		if compareNames(other, pod) == 0 {
			return true
		}
	}
	return false
}

func compareNames(a, b *corev1.Pod) int {
	return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
}

// StaticNamed returns the static pod of the name that the node runs, nil if there is none.
func (p *Manager) StaticNamed(namespace, name string) *corev1.Pod {
	for _, pod := range p.RunningStatics() {
		if pod.Namespace == namespace && pod.Name == name {
			return pod
		}
	}
	return nil
}

// RunningStatics lists the static pods on the node: one for each name, those that are leaving before those that wait
// for them.
func (p *Manager) RunningStatics() []*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*corev1.Pod, 0, len(p.statics.wanted)+len(p.statics.leaving))
	for _, pod := range p.statics.leaving {
		out = append(out, pod)
	}
	for _, pod := range p.statics.wanted {
		if !p.nameTaken(pod) {
			out = append(out, pod)
		}
	}
	return out
}

// StaticsKnown says whether the folder was read.
func (p *Manager) StaticsKnown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.statics.begun
}

func (p *Manager) mirrorSeen(mirror *corev1.Pod, gone bool) {
	if p.cfg.MirrorSeen != nil {
		p.cfg.MirrorSeen(mirror, gone)
	}
}
