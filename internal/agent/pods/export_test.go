package pods

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/podadmission"
	"github.com/everynode/everynode/internal/agent/podworker"
)

// Has reports whether the pod has a worker.
func (p *Manager) Has(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.workers[uid]
	return ok
}

// AloneForLong has the API server been waited for long enough.
func (p *Manager) AloneForLong() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alone.since = p.alone.since.Add(-alonePatience)
}

// AddIdle adds a worker for the pod that does not run, and returns what reports whether it was told of room.
func (p *Manager) AddIdle(uid types.UID) (freed func() bool) {
	w := newWorker(&p.cfg, p, uid)
	p.workers[uid] = w
	return func() bool { return w.freed }
}

func (p *Manager) Admit(pod *corev1.Pod) (podadmission.Admission, *podadmission.Refusal) {
	return p.admit(pod)
}

func (p *Manager) Resize(asked *corev1.Pod) (*corev1.Pod, podworker.Pending) { return p.resize(asked) }

func (p *Manager) Release(uid types.UID) { p.release(uid) }

func (b *Book) Seen(pod *corev1.Pod) { b.seen(pod) }

func (b *Book) Ended(uid types.UID, status *corev1.PodStatus) { b.ended(uid, status) }

func (b *Book) Forget(uid types.UID) { b.forget(uid) }
