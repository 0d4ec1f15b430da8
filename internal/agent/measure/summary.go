package measure

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/cri"
	"github.com/everynode/everynode/internal/node/usage"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// How far apart two samples of processor time must be, and how old the first may be.
const (
	minWindow = time.Second
	maxWindow = time.Minute
)

// Summarizer says what the node and its containers use. It measures only when it is asked, so a node that nobody asks
// spends nothing on it.
type Summarizer struct {
	NodeName string
	// Pods are the node's; UIDOf is by which UID the runtime knows one.
	Pods  func() []*corev1.Pod
	UIDOf func(*corev1.Pod) types.UID
	Stats func(ctx context.Context, uid types.UID) ([]cri.ContainerStats, error)
	// Machine reads the machine's processor time and the memory in use.
	Machine func() (cpu time.Duration, memory int64, err error)
	Clock   clock.Clock

	mu sync.Mutex
	// last are the samples that the next rates are reckoned from.
	last look
}

// look is what was measured at one moment.
type look struct {
	at         time.Time
	cpu        time.Duration
	memory     int64
	containers map[container]cri.ContainerStats
}

type container struct {
	pod  types.UID
	name string
}

// Summary measures. If the last time is too long ago it measures twice.
func (s *Summarizer) Summary(ctx context.Context) (*usage.Summary, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := s.Clock.Since(s.last.at); age > maxWindow {
		before, err := s.look(ctx)
		if err != nil {
			return nil, err
		}
		s.last = before
	}
	if wait := minWindow - s.Clock.Since(s.last.at); wait > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.Clock.After(wait):
		}
	}
	now, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	out := s.compare(s.last, now)
	s.last = now
	return out, nil
}

func (s *Summarizer) look(ctx context.Context) (look, error) {
	list, err := s.Stats(ctx, "")
	if err != nil {
		return look{}, err
	}
	l := look{at: s.Clock.Now(), containers: make(map[container]cri.ContainerStats, len(list))}
	for _, c := range list {
		l.containers[container{c.PodUID, c.Container}] = c
	}
	l.cpu, l.memory, err = s.Machine()
	return l, err
}

func (s *Summarizer) compare(before, now look) *usage.Summary {
	at := metav1.NewTime(now.at)
	out := &usage.Summary{Node: usage.Node{
		Name: s.NodeName, CPU: usage.Rate(usage.Sample{At: before.at, Used: before.cpu},
			usage.Sample{At: now.at, Used: now.cpu}),
		Memory: &usage.Memory{Time: at, WorkingSetBytes: uint64(max(now.memory, 0))},
	}}
	for _, pod := range s.Pods() {
		p := usage.Pod{Ref: usage.Reference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}}
		for _, spec := range podfacts.Containers(pod) {
			key := container{s.UIDOf(pod), spec.Name}
			c, ok := now.containers[key]
			if !ok {
				continue
			}
			old := before.containers[key]
			p.Containers = append(p.Containers, usage.Container{Name: c.Container,
				CPU:    usage.Rate(usage.Sample{At: old.Time, Used: old.CPU}, usage.Sample{At: c.Time, Used: c.CPU}),
				Memory: &usage.Memory{Time: at, WorkingSetBytes: uint64(max(c.Memory, 0))}})
		}
		if len(p.Containers) > 0 {
			out.Pods = append(out.Pods, p)
		}
	}
	return out
}
