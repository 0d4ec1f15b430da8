package cri

import (
	"context"
	"fmt"
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

type podLook struct {
	ref  PodRef
	look uint64
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
	for {
		now, err := r.look(ctx)
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
		if old, ok := last[uid]; !ok || old.look != p.look {
			changed(uid)
		}
	}
	for uid := range last {
		if _, ok := now[uid]; !ok {
			changed(uid)
		}
	}
}

func refs(pods map[types.UID]podLook) []PodRef {
	out := make([]PodRef, 0, len(pods))
	for _, p := range pods {
		out = append(out, p.ref)
	}
	return out
}

// look lists everything and sums up each pod's IDs and states, in whatever order they come.
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
	add := func(labels map[string]string, id string, state int32) {
		alive[id] = struct{}{}
		uid := types.UID(labels[labelPodUID])
		if uid == "" {
			return // not a pod's
		}
		p := out[uid]
		p.ref = PodRef{UID: uid, Namespace: labels[labelPodNamespace], Name: labels[labelPodName]}
		p.look += mix(id, state)
		out[uid] = p
	}
	for _, s := range sandboxes {
		add(s.Labels, s.Id, int32(s.State)+100)
	}
	for _, c := range containers {
		add(c.Labels, c.Id, int32(c.State))
	}
	r.forget(alive)
	return out, nil
}

func mix(id string, state int32) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return (h ^ uint64(state)) * 1099511628211
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
