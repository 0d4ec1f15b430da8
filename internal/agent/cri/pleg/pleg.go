// Package pleg is the pod lifecycle event generator: it looks through a container runtime again and again, and tells
// of which pods something has changed. A look that finds nothing new costs next to nothing.
package pleg

import (
	"context"
	"fmt"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/cri/labels"
	"github.com/everynode/everynode/internal/agent/podworker"
)

// relistEvery is how often the runtime is looked through for changes.
const relistEvery = time.Second

// PodRef names a pod that the runtime holds something of.
type PodRef struct {
	UID             types.UID
	Namespace, Name string
	// Runs says, in a list of all pods, that one of its containers does.
	Runs bool
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

// Generator looks through a runtime for changes.
type Generator struct {
	// Service is the runtime.
	Service internalapi.RuntimeService
	// Lister lists what the runtime holds; nil has Service do it, at a higher cost.
	Lister *Lister
	// Relisted is told of every look: how long it took, how long after the one before it began (0 for the first), how
	// many sandboxes are ready, and how many containers are in which state. May be nil.
	Relisted func(took, after time.Duration, sandboxes int, containers map[string]int)
	// Held is told after every look what the runtime holds, by ID.
	Held func(sandbox, container func(id string) bool)
}

// Watch looks through the runtime until ctx ends: every second, and at once when the runtime says that a container
// changed, if it can say so.
func (g *Generator) Watch(ctx context.Context, w Watcher) {
	hint := make(chan struct{}, 1)
	go g.listen(ctx, hint)
	ticker := time.NewTicker(relistEvery)
	defer ticker.Stop()
	var last *looked
	var before time.Time
	for {
		began := time.Now()
		now, err := g.look(ctx, last)
		if err == nil && g.Relisted != nil {
			var after time.Duration
			if !before.IsZero() {
				after = began.Sub(before)
			}
			sandboxes, containers := count(now.pods)
			g.Relisted(time.Since(began), after, sandboxes, containers)
		}
		before = began
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.RuntimeFailed(err)
		default:
			if last == nil {
				last = &looked{}
			}
			if now != last {
				compare(last.pods, now.pods, w.RuntimeChanged)
			}
			last = now
			w.RuntimeListed(now.refs)
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
			containers[StateOf(state).String()]++
		}
	}
	return sandboxes, containers
}

func refs(pods map[types.UID]podLook) []PodRef {
	out := make([]PodRef, 0, len(pods))
	for _, p := range pods {
		ref := p.ref
		for _, state := range p.containers {
			ref.Runs = ref.Runs || StateOf(state) == podworker.Running
		}
		out = append(out, ref)
	}
	return out
}

// looked is what a look found: the lists, and what of them is whose.
type looked struct {
	sandboxes, containers listing
	pods                  map[types.UID]podLook
	refs                  []PodRef
}

// look lists everything, by pod. It returns last itself, the look before, where nothing is different; nil for the
// first look.
func (g *Generator) look(ctx context.Context, last *looked) (*looked, error) {
	if last == nil {
		last = &looked{}
	}
	now := &looked{}
	var lists interface {
		sandboxes(ctx context.Context, last listing) (now listing, changed bool, err error)
		containers(ctx context.Context, last listing) (now listing, changed bool, err error)
	} = whole{g.Service}
	if g.Lister != nil {
		lists = g.Lister
	}
	var changed, changed2 bool
	var err error
	now.sandboxes, changed, err = lists.sandboxes(ctx, last.sandboxes)
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	now.containers, changed2, err = lists.containers(ctx, last.containers)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	if changed || changed2 {
		now.pods = now.byPod()
		now.refs = refs(now.pods)
	} else {
		now = last
	}
	if g.Held != nil {
		g.Held(now.sandboxes.has, now.containers.has)
	}
	return now, nil
}

// podOf says whose a sandbox or a container with such labels is; the UID is empty if no pod's.
func podOf(has map[string]string) PodRef {
	return PodRef{UID: types.UID(has[labels.PodUID]), Namespace: has[labels.PodNamespace], Name: has[labels.PodName]}
}

func (l *looked) byPod() map[types.UID]podLook {
	out := make(map[types.UID]podLook, len(l.sandboxes))
	of := func(ref PodRef) podLook {
		pod, ok := out[ref.UID]
		if !ok {
			pod = podLook{ref: ref, sandboxes: map[string]runtimeapi.PodSandboxState{},
				containers: map[string]runtimeapi.ContainerState{}}
			out[ref.UID] = pod
		}
		return pod
	}
	for id, s := range l.sandboxes {
		if s.pod.UID != "" {
			of(s.pod).sandboxes[id] = runtimeapi.PodSandboxState(s.state)
		}
	}
	for id, c := range l.containers {
		if c.pod.UID != "" {
			of(c.pod).containers[id] = runtimeapi.ContainerState(c.state)
		}
	}
	return out
}

// has reports whether something is in a list, by ID.
func (l listing) has(id string) bool {
	_, ok := l[id]
	return ok
}

// listen turns the runtime's container events into hints, where it has such events.
func (g *Generator) listen(ctx context.Context, hint chan<- struct{}) {
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
		err := g.Service.GetContainerEvents(ctx, events, nil)
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

// StateOf is a state of the runtime, as the agent calls it.
func StateOf(s runtimeapi.ContainerState) podworker.ContainerState {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return podworker.Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return podworker.Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return podworker.Exited
	default:
		return podworker.Unknown
	}
}
