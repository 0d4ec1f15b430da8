package cri

import (
	"context"
	"fmt"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
)

// relistEvery is how often the runtime is looked through for changes.
const relistEvery = time.Second

// PodRef names a pod that the runtime holds something of.
type PodRef struct {
	UID             types.UID
	Namespace, Name string
}

// podLook is how a pod was at a look. The states themselves are kept: two changes at once can cancel out in any sum.
type podLook struct {
	ref PodRef
	// sandboxes and containers are the states by ID.
	sandboxes  map[string]runtimeapi.PodSandboxState
	containers map[string]runtimeapi.ContainerState
}

func (p podLook) same(other podLook) bool {
	return maps.Equal(p.sandboxes, other.sandboxes) && maps.Equal(p.containers, other.containers)
}

// Watcher hears of changes in the runtime. Its methods are called from one goroutine and must not block.
type Watcher interface {
	// RuntimeChanged says that something of the pod changed.
	RuntimeChanged(uid types.UID)
	// RuntimeListed names all pods that the runtime holds something of, after every look.
	RuntimeListed(all []PodRef)
	// RuntimeFailed says that the runtime could not be looked through.
	RuntimeFailed(err error)
}

// Watch looks through the runtime until ctx ends: every second, and at once when the runtime says that a container
// changed, if it can say so.
func (r *Runtime) Watch(ctx context.Context, w Watcher) {
	hint := make(chan struct{}, 1)
	go r.listen(ctx, hint)
	ticker := time.NewTicker(relistEvery)
	defer ticker.Stop()
	var last map[types.UID]podLook
	var before time.Time
	for {
		began := time.Now()
		now, err := r.look(ctx)
		if err == nil && r.cfg.Relisted != nil {
			var after time.Duration
			if !before.IsZero() {
				after = began.Sub(before)
			}
			sandboxes, containers := count(now)
			r.cfg.Relisted(time.Since(began), after, sandboxes, containers)
		}
		before = began
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.RuntimeFailed(err)
		default:
			compare(last, now, w.RuntimeChanged)
			last = now
			w.RuntimeListed(refs(now))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-hint:
		}
	}
}

func compare(last, now map[types.UID]podLook, changed func(types.UID)) {
	for uid, p := range now {
		if old, ok := last[uid]; !ok || !p.same(old) {
			changed(uid)
		}
	}
	for uid := range last {
		if _, ok := now[uid]; !ok {
			changed(uid)
		}
	}
}

// count says how many sandboxes are ready, and how many containers are in which state.
func count(pods map[types.UID]podLook) (sandboxes int, containers map[string]int) {
	containers = map[string]int{}
	for _, p := range pods {
		for _, state := range p.sandboxes {
			if state == runtimeapi.PodSandboxState_SANDBOX_READY {
				sandboxes++
			}
		}
		for _, state := range p.containers {
			containers[stateOf(state).String()]++
		}
	}
	return sandboxes, containers
}

func refs(pods map[types.UID]podLook) []PodRef {
	out := make([]PodRef, 0, len(pods))
	for _, p := range pods {
		out = append(out, p.ref)
	}
	return out
}

// look lists everything, by pod.
func (r *Runtime) look(ctx context.Context) (map[types.UID]podLook, error) {
	sandboxes, err := r.service.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := r.service.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out := make(map[types.UID]podLook, len(sandboxes))
	alive := make(map[string]struct{}, len(sandboxes)+len(containers))
	podOf := func(labels map[string]string, id string) (podLook, bool) {
		alive[id] = struct{}{}
		uid := types.UID(labels[labelPodUID])
		if uid == "" {
			return podLook{}, false // not a pod's
		}
		if _, ok := out[uid]; !ok {
			out[uid] = podLook{
				ref:       PodRef{UID: uid, Namespace: labels[labelPodNamespace], Name: labels[labelPodName]},
				sandboxes: map[string]runtimeapi.PodSandboxState{}, containers: map[string]runtimeapi.ContainerState{},
			}
		}
		return out[uid], true
	}
	for _, s := range sandboxes {
		if pod, ok := podOf(s.Labels, s.Id); ok {
			pod.sandboxes[s.Id] = s.State
		}
	}
	for _, c := range containers {
		if pod, ok := podOf(c.Labels, c.Id); ok {
			pod.containers[c.Id] = c.State
		}
	}
	r.forget(alive)
	return out, nil
}

// forget drops what is remembered of containers and sandboxes that are no more.
func (r *Runtime) forget(alive map[string]struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.containers {
		if _, ok := alive[id]; !ok {
			delete(r.containers, id)
		}
	}
	for id := range r.sandboxes {
		if _, ok := alive[id]; !ok {
			delete(r.sandboxes, id)
		}
	}
}

// listen turns the runtime's container events into hints, where it has such events.
func (r *Runtime) listen(ctx context.Context, hint chan<- struct{}) {
	for ctx.Err() == nil {
		events := make(chan *runtimeapi.ContainerEventResponse, 64)
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			for range events {
				select {
				case hint <- struct{}{}:
				default:
				}
			}
		}()
		err := r.service.GetContainerEvents(ctx, events, nil)
		close(events)
		<-drained
		if grpcstatus.Code(err) == codes.Unimplemented {
			klog.FromContext(ctx).V(2).Info("The runtime offers no container events, looking every second only")
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(relistEvery):
		}
	}
}
