package pods

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/images"
	"github.com/everynode/everynode/internal/agent/podadmission"
	"github.com/everynode/everynode/internal/agent/podworker"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// observeRetry is how long a worker waits before it reads from a runtime that just failed.
const observeRetry = time.Second

// home is what a worker asks of the node it is on; Manager is one.
type home interface {
	// admit gives the pod room on the node, or says why there is none.
	admit(pod *corev1.Pod) (podadmission.Admission, *podadmission.Refusal)
	// resize gives the pod the CPU and memory that it asks for, if there is room. It returns the pod with what it has.
	resize(asked *corev1.Pod) (*corev1.Pod, podworker.Pending)
	// Active reports whether the pod takes room on the node.
	Active(uid types.UID) bool
	// holds says for what the pod waits before anything of it starts, and when to ask again; empty if it may start.
	holds(uid types.UID) (why string, again time.Time)
	// reported is told of every status.
	reported(uid types.UID, status *corev1.PodStatus)
	// release gives the pod's room back: it ended, or left the node. retire also forgets the worker.
	release(uid types.UID)
	retire(uid types.UID)
}

// worker looks after one pod. Its goroutine alone touches what mailbox does not guard.
type worker struct {
	cfg     *Config
	home    home
	uid     types.UID
	wake    chan struct{}
	results chan result

	// mailbox guards what came in since the last look: newPod to freed.
	mailbox sync.Mutex
	newPod  *corev1.Pod
	gone    bool
	dirty   bool
	ending  *podworker.Termination
	// over says that the pod ended, discards that what it left is to go.
	over, discards bool
	// freed says that there may be room for what the pod was not given.
	freed bool

	// asked is the pod as the API has it; in.Pod has the CPU and memory that the node gave it.
	asked   *corev1.Pod
	memory  podworker.Memory
	in      podworker.Input
	status  corev1.PodStatus
	checked bool
	// awaited are pods that must have ended before anything of this one starts: it has their room.
	awaited []types.UID
	// told is what people were told last that it waits for, before anything of it starts.
	told string
	// needsDevices says that the pod was given room just now, and no devices yet.
	needsDevices bool
	released     bool
	// present are the images made present for the containers' next starts.
	present map[string]images.Image
	// abandon cuts short the waiting of the set-up action under way.
	abandon context.CancelFunc
}

// result is how an action ended.
type result struct {
	action  podworker.Action
	outcome podworker.Outcome
	image   images.Image
}

func newWorker(cfg *Config, home home, uid types.UID) *worker {
	w := &worker{cfg: cfg, home: home, uid: uid, wake: make(chan struct{}, 1), results: make(chan result), dirty: true,
		present: map[string]images.Image{}}
	w.in.Memory = &w.memory
	return w
}

func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) setPod(pod *corev1.Pod) {
	w.mailbox.Lock()
	w.newPod = pod
	w.mailbox.Unlock()
	w.poke()
}

// setGone says that the API no longer has the pod; pod is its last state, nil if it was never seen.
func (w *worker) setGone(pod *corev1.Pod) {
	w.mailbox.Lock()
	w.gone = true
	if pod != nil {
		w.newPod = pod
	}
	w.mailbox.Unlock()
	w.poke()
}

// isGone reports whether the API no longer has the pod.
func (w *worker) isGone() bool {
	w.mailbox.Lock()
	defer w.mailbox.Unlock()
	return w.gone
}

// Terminate has the pod end; false if it is to end already, which it then does within the shorter grace.
func (w *worker) terminate(t podworker.Termination) bool {
	w.mailbox.Lock()
	defer w.mailbox.Unlock()
	first := w.ending == nil && !w.gone
	if w.ending != nil {
		t.Reason, t.Message, t.Grace = w.ending.Reason, w.ending.Message, min(t.Grace, w.ending.Grace)
	}
	w.ending = &t
	w.poke()
	return first
}

// discard has a pod that ended leave nothing in the runtime; false if it did not end, or was told so before.
func (w *worker) discard() bool {
	w.mailbox.Lock()
	defer w.mailbox.Unlock()
	if w.discards || !w.over {
		return false
	}
	w.discards = true
	w.poke()
	return true
}

func (w *worker) lookAgain() {
	w.mailbox.Lock()
	w.dirty = true
	w.mailbox.Unlock()
	w.poke()
}

func (w *worker) run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("podUID", w.uid)
	ctx = klog.NewContext(ctx, logger)
	var running sync.WaitGroup
	defer w.drain(&running)
	defer w.cfg.Prober.Stop(w.uid)
	timer := w.cfg.Clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C():
		case r := <-w.results:
			w.finished(r)
		}
		wait, ok := w.step(ctx, &running)
		if !ok {
			return
		}
		timer.Stop()
		if wait >= 0 {
			timer = w.cfg.Clock.NewTimer(wait)
		}
	}
}

// drain takes the results of what is still under way, so that nothing hangs on the way out.
func (w *worker) drain(running *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	for {
		select {
		case <-w.results:
		case <-done:
			return
		}
	}
}

// step decides once and begins what was decided. It returns how long to wait at most for the next time (negative: until
// something happens), and false when the pod is done with.
func (w *worker) step(ctx context.Context, running *sync.WaitGroup) (time.Duration, bool) {
	if err := w.refresh(ctx); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("Could not read the pod from the runtime, will try again", "err", err)
		}
		return observeRetry, true
	}
	if w.in.Pod == nil && !w.in.Gone {
		return -1, true
	}
	w.memory.RecallSizes(w.in.Pod, w.in.Runtime)
	w.checkIn(ctx)
	if w.awaitsRoom() {
		return -1, true
	}
	w.takeDevices(ctx)
	w.in.Now = w.cfg.Clock.Now()
	w.in.Probes = w.cfg.Prober.Results(w.uid)
	if again := w.awaitsTurn(); !again.IsZero() {
		w.report()
		if w.released {
			return 0, true // it was refused, or its time is over: it waits for nobody
		}
		return max(again.Sub(w.cfg.Clock.Now()), 0), true
	}
	plan := podworker.Decide(w.in)
	if plan.Ending {
		// A container that stops is not to be called unhealthy; but some still serve, and are asked for as long as they do.
		w.cfg.Prober.KeepReadiness(w.uid)
	}
	if plan.Abandon && w.abandon != nil {
		w.abandon()
	}
	if plan.Ending {
		w.report() // the last status is there before the pod is asked to go
	}
	w.begin(ctx, plan.Actions, running)
	w.report()
	if w.memory.Forgotten() {
		w.cfg.Statuses.Forget(w.uid)
		w.home.retire(w.uid)
		return 0, false
	}
	if plan.Deadline.IsZero() {
		return -1, true
	}
	return max(plan.Deadline.Sub(w.cfg.Clock.Now()), 0), true
}

// refresh takes in what changed since the last time.
func (w *worker) refresh(ctx context.Context) error {
	w.mailbox.Lock()
	if w.newPod != nil {
		old := w.in.Pod
		w.asked, w.in.Pod = w.newPod, w.newPod
		w.follow() // before anybody reads what the pod is pointed at
		if old != nil && (!maps.Equal(old.Labels, w.newPod.Labels) ||
			!maps.Equal(old.Annotations, w.newPod.Annotations)) {
			w.cfg.Volumes.PodChanged(w.newPod)
		}
		if w.cfg.Fetcher != nil {
			w.cfg.Fetcher.PodChanged(w.newPod)
		}
	}
	again := w.newPod != nil || w.freed
	w.in.Gone = w.gone
	if w.ending != nil {
		w.memory.Terminate(*w.ending)
	}
	if w.discards {
		w.memory.Discard()
	}
	dirty := w.dirty
	w.newPod, w.dirty, w.freed = nil, false, false
	w.mailbox.Unlock()
	if again {
		w.allocate()
	}
	if !dirty && w.in.Runtime != nil {
		return nil
	}
	rt, err := w.cfg.Runtime.Observe(ctx, w.uid)
	if err != nil {
		w.lookAgainLater()
		return err
	}
	w.in.Runtime = rt
	w.probe()
	return nil
}

// follow has what the pod refers to at hand for as long as containers may start.
func (w *worker) follow() {
	if w.cfg.References == nil || w.gone || w.released || podfacts.IsTerminal(w.in.Pod) {
		return
	}
	w.cfg.References.Follow(w.in.Pod)
}

// lookAgainLater remembers that the runtime was not read, without waking the worker at once.
func (w *worker) lookAgainLater() {
	w.mailbox.Lock()
	w.dirty = true
	w.mailbox.Unlock()
}

// probe tells the prober which containers run that are not to stop.
func (w *worker) probe() {
	if w.in.Pod == nil {
		return
	}
	if w.in.Gone {
		w.cfg.Prober.Stop(w.uid)
		return
	}
	if w.in.Pod.DeletionTimestamp != nil {
		return
	}
	ip := ""
	if ips := w.podIPs(); len(ips) > 0 {
		ip = ips[0]
	}
	for i := range w.in.Runtime.Containers {
		if c := &w.in.Runtime.Containers[i]; c.State == podworker.Running {
			w.cfg.Prober.Start(w.in.Pod, ip, c.Name, c.ID, c.StartedAt)
		}
	}
}

// checkIn asks for room on the node, once, for a pod that nothing of is there yet.
func (w *worker) checkIn(ctx context.Context) {
	pod := w.in.Pod
	if w.checked || pod == nil || w.in.Gone || pod.DeletionTimestamp != nil {
		return
	}
	w.checked = true
	if podfacts.IsTerminal(pod) || w.memory.Ended() {
		return
	}
	fresh := !w.home.Active(pod.UID)
	given, r := w.home.admit(pod)
	w.awaitEnd(ctx, given)
	w.needsDevices = r == nil && fresh
	w.refuse(ctx, r)
}

// takeDevices has a pod that was given room get its devices, which those before it may have had.
func (w *worker) takeDevices(ctx context.Context) {
	pod := w.in.Pod
	if !w.needsDevices || pod == nil || w.in.Gone || pod.DeletionTimestamp != nil || w.memory.ToEnd() {
		return
	}
	w.needsDevices = false
	w.refuse(ctx, w.giveDevices(ctx, pod))
}

// refuse has the pod fail, unless r is nil.
func (w *worker) refuse(ctx context.Context, r *podadmission.Refusal) {
	if r == nil || ctx.Err() != nil {
		return
	}
	w.memory.Reject(podworker.Rejection{Reason: r.Reason, Message: r.Message})
	w.cfg.Events.Pod(w.in.Pod, corev1.EventTypeWarning, r.Reason, r.Message)
}

// begin starts the actions: kills each on its own, the others one after the other.
func (w *worker) begin(ctx context.Context, actions []podworker.Action, running *sync.WaitGroup) {
	var serial []podworker.Action
	for _, a := range actions {
		w.memory.Begin(a, w.in.Now)
		klog.FromContext(ctx).V(3).Info("Acting for a pod", "pod", klog.KObj(w.in.Pod), "action", a.String())
		switch a.Kind {
		case podworker.Announce:
			w.announce(a)
			w.memory.Done(a, podworker.Outcome{}, w.in.Now)
		case podworker.KillContainer:
			t := w.task(a)
			running.Go(func() { w.send(result{action: a, outcome: t.kill(ctx)}) })
		default:
			serial = append(serial, a)
		}
	}
	if len(serial) == 0 {
		return
	}
	tasks := make([]task, len(serial))
	for i, a := range serial {
		tasks[i] = w.task(a)
	}
	setUp, cancel := context.WithCancel(ctx)
	w.abandon = cancel
	running.Go(func() {
		defer cancel()
		for _, t := range tasks {
			outcome, image := t.perform(ctx, setUp)
			w.send(result{action: t.action, outcome: outcome, image: image})
		}
	})
}

// send hands a result to the worker's goroutine, which takes results until everything that it began has ended.
func (w *worker) send(r result) { w.results <- r }

// finished takes in how an action ended.
func (w *worker) finished(r result) {
	w.memory.Done(r.action, r.outcome, w.cfg.Clock.Now())
	switch r.action.Kind {
	case podworker.PullImage:
		if !r.outcome.Failed() {
			w.present[r.action.Container] = r.image
		}
	case podworker.SetUpVolumes, podworker.TearDownVolumes, podworker.Finish, podworker.Forget:
	default:
		w.lookAgainLater()
	}
}

// report sends the pod's status, and gives its room back once it ended.
func (w *worker) report() {
	pod := w.in.Pod
	if pod == nil || w.in.Gone || w.memory.Finished() {
		return
	}
	prev := &w.status
	if prev.Phase == "" {
		prev = &pod.Status
	}
	w.in.Content = podworker.Content(w.cfg.Volumes.Shows(w.uid))
	if w.cfg.Fetcher != nil {
		w.in.Fetched = w.cfg.Fetcher.Answer(w.uid)
	}
	w.status = podworker.Status(w.in, prev, w.cfg.HostIPs())
	w.memory.Recall(&w.status)
	w.cfg.Statuses.Set(pod, w.status)
	w.home.reported(w.uid, &w.status)
	if w.memory.Ended() && !w.released {
		w.released = true
		w.mailbox.Lock()
		w.over = true
		w.mailbox.Unlock()
		w.cfg.Book.ended(w.uid, &w.status)
		w.home.release(w.uid)
	}
}

func (w *worker) podIPs() []string {
	if w.in.Pod != nil && w.in.Pod.Spec.HostNetwork {
		return w.cfg.HostIPs()
	}
	var newest *podworker.Sandbox
	for i := range w.in.Runtime.Sandboxes {
		if s := &w.in.Runtime.Sandboxes[i]; s.Ready && (newest == nil || s.Attempt > newest.Attempt) {
			newest = s
		}
	}
	switch {
	case newest == nil:
		return nil
	case newest.HostNetwork:
		return w.cfg.HostIPs()
	default:
		return newest.IPs
	}
}

// announce tells the user about a back-off.
func (w *worker) announce(a podworker.Action) {
	w.cfg.Events.Container(w.in.Pod, a.Container, warningOr(a.Reason), "BackOff", a.Message)
	if a.Reason == podworker.ReasonImagePullBackOff {
		w.cfg.Events.Container(w.in.Pod, a.Container, corev1.EventTypeWarning, "Failed", "Error: "+a.Reason)
	}
}

func warningOr(reason string) string {
	if reason == podworker.ReasonImagePullBackOff {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}
