// Package pods runs the pods of a node.
//
//	API (the node's pods) ─► Manager ─► one worker per pod ─► podworker.Decide ─► task ─► runtime, images, volumes, hooks
//	runtime               ─►    │                 ▲                                │
//	probes                ─►    └─ podadmission   └── outcomes ◄───────────────────┘
//	                                              └── podworker.Status ─► Statuses ─► API
//
// Decisions are podworker's and podadmission's. A worker is one goroutine that owns its pod's memory; what takes time
// runs beside it and reports back. Nothing is kept on disk: a worker that starts reads from the runtime what runs
// already.
package pods

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cri/pleg"
	"github.com/everynode/everynode/internal/agent/podadmission"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/startorder"
	"github.com/everynode/everynode/internal/agent/staticpods"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Manager hands every pod of the node to its worker. It waits until both the API and the runtime were read once: before
// that nobody knows what is new, what runs already, and what nobody wants any more. It is safe for concurrent use.
type Manager struct {
	cfg Config
	ctx context.Context //nolint:containedctx // the workers' lifetime, given to Run; handlers have no context of their own
	wg  sync.WaitGroup

	mu      sync.Mutex // guards what is below
	workers map[types.UID]*worker
	// desired holds the API's pods that came before the start.
	desired map[types.UID]*corev1.Pod
	// admitted holds the pods that take room on the node.
	admitted map[types.UID]*corev1.Pod
	// roomFor are those that wait for the end of others, by these.
	roomFor map[types.UID][]types.UID
	// resizes are the pods that wait for room for more CPU or memory.
	resizes               map[types.UID]bool
	apiRead, runtimeRead  bool
	runtimeErr            error
	started, shuttingDown bool
	// closed is why no pod is taken any more; nil while pods are.
	closed *podadmission.Refusal
	// suspects are the pods that the runtime had and nobody knew, at the last look.
	suspects map[types.UID]bool
	// lookedAt is when the last look ended well.
	lookedAt time.Time
	// listed is what the runtime held at the last look.
	listed  []pleg.PodRef
	statics statics
	alone   alone
	// order is that of the start, if ordered says that there is one: the machine has started again.
	order   startorder.Order
	ordered bool
	// knownC is what Known returns.
	knownC chan struct{}
}

// New returns a Manager whose workers run until ctx ends. It runs nothing yet.
func New(ctx context.Context, cfg Config) *Manager {
	if cfg.Book == nil {
		cfg.Book = NewBook(nil, nil)
	}
	return &Manager{
		cfg: cfg, ctx: ctx, workers: map[types.UID]*worker{}, desired: map[types.UID]*corev1.Pod{},
		admitted: map[types.UID]*corev1.Pod{}, roomFor: map[types.UID][]types.UID{}, resizes: map[types.UID]bool{},
		lookedAt: cfg.Clock.Now(), knownC: make(chan struct{}),
		statics: statics{
			awaited: cfg.StaticPods, wanted: map[types.UID]*corev1.Pod{}, leaving: map[types.UID]*corev1.Pod{},
		},
	}
}

// Known is closed once every pod that the API had at first has its worker: what belongs to no worker then belongs to
// nobody.
func (p *Manager) Known() <-chan struct{} { return p.knownC }

// PodChanged is told of every pod of the node that the API adds or changes.
func (p *Manager) PodChanged(pod *corev1.Pod) {
	if podfacts.IsMirror(pod) {
		p.mirrorSeen(pod, false)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.alone.unseen, pod.UID)
	p.cfg.Book.seen(pod)
	if !p.started {
		p.desired[pod.UID] = pod
		return
	}
	if pod.DeletionTimestamp != nil {
		p.leavesOrder(pod.UID)
	}
	p.workerFor(pod.UID).setPod(pod)
}

// PodDeleted is told of every pod that the API no longer has.
func (p *Manager) PodDeleted(pod *corev1.Pod) {
	if podfacts.IsMirror(pod) {
		p.mirrorSeen(pod, true)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.desired, pod.UID)
	delete(p.alone.unseen, pod.UID)
	p.gone(pod)
}

// gone has a pod leave that the API does not have any more. The caller holds mu.
func (p *Manager) gone(pod *corev1.Pod) {
	p.leavesOrder(pod.UID)
	w, ok := p.workers[pod.UID]
	if !ok {
		p.cfg.Book.forget(pod.UID)
		if p.cfg.References != nil {
			p.cfg.References.Forget(pod.UID) // of an earlier run
		}
		return
	}
	p.cfg.Book.leaves(pod, p.cfg.Clock.Now())
	w.setGone(pod)
}

// APIListed says that podChanged was told of all pods that the API had at first.
func (p *Manager) APIListed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apiRead = true
	p.leaveUnseen()
	if p.started {
		close(p.knownC)
	}
}

// RuntimeChanged wakes the pod's worker to look at the runtime.
func (p *Manager) RuntimeChanged(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.workers[uid]; ok {
		w.lookAgain()
	}
}

// RuntimeListed starts the workers at the first time that the API was read too, and then takes care of pods that only
// the runtime knows.
func (p *Manager) RuntimeListed(all []pleg.PodRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.runtimeRead
	p.lookedAt = p.cfg.Clock.Now()
	p.runtimeRead, p.runtimeErr, p.listed = true, nil, all
	if first {
		p.alone.since = p.lookedAt
		p.ordered = p.cfg.Rebooted && !slices.ContainsFunc(all, func(ref pleg.PodRef) bool { return ref.Runs })
		p.startStatics()
	}
	if p.statics.awaited || p.shuttingDown {
		return
	}
	if !p.started && (p.apiRead || p.isAlone()) {
		p.start(all)
	}
	if !p.apiRead {
		return
	}
	suspects := map[types.UID]bool{}
	for _, ref := range all {
		if _, ok := p.workers[ref.UID]; ok {
			continue
		}
		// A pod that has just left may still be in a list that began before: only what is there twice is an orphan.
		suspects[ref.UID] = true
		if p.suspects[ref.UID] {
			klog.FromContext(p.ctx).Info("Found a pod that the API does not have, removing it", "pod",
				klog.KRef(ref.Namespace, ref.Name), "podUID", ref.UID)
			p.workerFor(ref.UID).setGone(nil)
		}
	}
	p.suspects = suspects
	for uid := range p.admitted {
		if _, ok := p.workers[uid]; !ok && !suspects[uid] {
			p.cfg.Book.forget(uid)
			p.leaves(uid) // it was there at the start, and left by itself
		}
	}
}

// start makes the workers of all pods known now, those that run already first.
func (p *Manager) start(running []pleg.PodRef) {
	p.started = true
	if p.apiRead {
		close(p.knownC)
	} else {
		p.addRecalled(running)
	}
	p.admitRunning(running)
	list := make([]*corev1.Pod, 0, len(p.desired))
	for _, pod := range p.desired {
		list = append(list, pod)
	}
	slices.SortFunc(list, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	p.orderStart(list)
	for _, pod := range list {
		p.workerFor(pod.UID).setPod(pod)
	}
	p.desired = nil
}

// admitRunning has the pods that the runtime has something of have their room, unless all that they left has ended. One
// that is remembered, and that the API does not have any more, has it until it is removed. The caller holds mu.
func (p *Manager) admitRunning(running []pleg.PodRef) {
	for _, ref := range running {
		known := p.alone.recalled[ref.UID]
		pod := p.desired[ref.UID]
		if pod == nil && known.Pod != nil {
			pod = known.Pod
			p.cfg.Book.leaves(pod, p.cfg.Clock.Now())
		}
		if pod != nil && (ref.Runs || !podfacts.IsTerminal(pod) && known.Ended == nil) {
			p.admitted[ref.UID] = podadmission.AsReported(pod)
		}
	}
}

// Remains says whether the pod has a worker, or had something in the runtime at the last look. What it uses is not to
// be taken from it.
func (p *Manager) Remains(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.workers[uid]
	return ok || slices.ContainsFunc(p.listed, func(ref pleg.PodRef) bool { return ref.UID == uid })
}

// RuntimeFailed says so once, until the runtime can be read again.
func (p *Manager) RuntimeFailed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runtimeErr == nil {
		klog.FromContext(p.ctx).Error(err, "Could not look through the container runtime")
	}
	p.runtimeErr = err
}

// ProbeChanged wakes the pod's worker.
func (p *Manager) ProbeChanged(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.workers[uid]; ok {
		w.poke()
	}
}

// ContentShown has a pod's status say what its volumes show.
func (p *Manager) ContentShown(uid types.UID) { p.ProbeChanged(uid) }

// ImagesFetched has a pod's status say what came of fetching images.
func (p *Manager) ImagesFetched(uid types.UID) { p.ProbeChanged(uid) }

// AddressChanged has each pod's status say the node's new address.
func (p *Manager) AddressChanged() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.workers {
		w.poke()
	}
}

// workerFor returns the pod's worker, which it starts if there is none. The caller holds mu.
func (p *Manager) workerFor(uid types.UID) *worker {
	if w, ok := p.workers[uid]; ok {
		return w
	}
	w := newWorker(&p.cfg, p, uid)
	p.recallEnd(w)
	p.workers[uid] = w
	if !p.shuttingDown {
		p.wg.Go(func() { w.run(p.ctx) })
	}
	return w
}

// retire forgets a worker that ended.
func (p *Manager) retire(uid types.UID) {
	p.cfg.Devices.Free(uid)
	p.unfollow(uid)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.workers, uid)
	delete(p.alone.recalled, uid)
	p.cfg.Book.forget(uid)
	p.leaves(uid)
	if _, ok := p.statics.leaving[uid]; ok {
		delete(p.statics.leaving, uid)
		p.startStatics()
	}
}

// release gives the pod's room back: it ended, or left the node.
func (p *Manager) release(uid types.UID) {
	p.cfg.Devices.Free(uid)
	p.unfollow(uid)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaves(uid)
	p.leavesOrder(uid)
}

func (p *Manager) unfollow(uid types.UID) {
	if p.cfg.Fetcher != nil {
		p.cfg.Fetcher.PodGone(uid)
	}
	if p.cfg.References != nil {
		p.cfg.References.Forget(uid)
	}
}

// Active says whether the pod takes room on the node.
func (p *Manager) Active(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.admitted[uid]
	return ok
}

// ActivePods are the pods that take room on the node.
func (p *Manager) ActivePods() []*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.admitted))
}

// Terminate ends a pod of the node, once; false if there is nothing to end.
func (p *Manager) Terminate(uid types.UID, t podworker.Termination) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, ok := p.workers[uid]
	p.leavesOrder(uid)
	return ok && w.terminate(t)
}

// DiscardEnded has the pods that ended leave nothing in the runtime: the room is needed. It says how many were not
// told before.
func (p *Manager) DiscardEnded() (told int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, w := range p.workers {
		if _, ok := p.admitted[uid]; !ok && w.discard() {
			told++
		}
	}
	return told
}

// Close takes no more pods, for this reason. Those that the node has stay.
func (p *Manager) Close(why *podadmission.Refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = why
}

// admit gives the pod room on the node, or says why there is none.
func (p *Manager) admit(pod *corev1.Pod) (given podadmission.Admission, why *podadmission.Refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.admitted[pod.UID]; ok {
		return given, nil
	}
	if p.closed != nil {
		return given, p.closed
	}
	node := podadmission.Node{Object: p.cfg.Node(), AppArmor: p.cfg.AppArmor, Sysctls: p.cfg.Sysctls,
		Provides: p.cfg.Devices.Provides}
	if p.cfg.Pressures != nil {
		node.Pressures = p.cfg.Pressures()
	}
	others := make([]podadmission.Pod, 0, len(p.admitted))
	for _, other := range p.admitted {
		others = append(others, p.candidate(other))
	}
	given, why = podadmission.Decide(p.candidate(pod), node, others)
	if why != nil {
		return given, why
	}
	for _, victim := range given.Victims {
		p.makeRoom(victim)
	}
	for _, other := range slices.Concat(given.Leaving, given.Victims) {
		p.roomFor[other.UID] = append(p.roomFor[other.UID], pod.UID)
	}
	p.admitted[pod.UID] = pod
	return given, nil
}

// candidate is the pod as admission looks at it. One without a worker is about to be removed. The caller holds mu.
func (p *Manager) candidate(pod *corev1.Pod) podadmission.Pod {
	w, ok := p.workers[pod.UID]
	return podadmission.Pod{Object: pod, Static: staticpods.IsUID(pod.UID), Gone: !ok || w.isGone()}
}

// Wait returns once ctx has ended and no worker runs. What runs in containers runs on.
func (p *Manager) Wait(ctx context.Context) {
	<-ctx.Done()
	p.mu.Lock()
	p.shuttingDown = true
	p.mu.Unlock()
	p.wg.Wait()
}

// lookPatience is how long the runtime may not have been looked through before the node is unwell: it hangs, or fails.
// A kubelet allows three minutes, too.
const lookPatience = 3 * time.Minute

// Healthy says what is wrong with the agent itself, in a kubelet's words. A node that is unwell is not ready.
func (p *Manager) Healthy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if since := p.cfg.Clock.Since(p.lookedAt); since > lookPatience {
		return fmt.Errorf("PLEG is not healthy: pleg was last seen active %v ago; threshold is %v",
			since.Truncate(time.Second), lookPatience)
	}
	return nil
}
