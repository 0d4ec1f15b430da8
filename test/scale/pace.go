package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pace watches the pods of the DaemonSet that is updated, as a client does, and finds how
// long nodes are without one that is available: from when it was wanted, which is when the
// DaemonSet was created or when the node's old pod was told to go, until the new one is
// seen to be ready.
type pace struct {
	mu sync.Mutex // guards all below
	// begun is when all nodes began to want a pod that none wants for a reason of its own.
	begun time.Time
	// wanted is since when a node waits, served which nodes have not begun to wait again.
	wanted map[string]time.Time
	served map[string]bool
	// leaving are pods that were told to go.
	leaving map[types.UID]bool
	there   map[types.UID]bool
	waits   []time.Duration
	failure error
}

// watchPods begins to watch, and ends with ctx.
func (b *bench) watchPods(ctx context.Context) *pace {
	p := &pace{
		wanted:  map[string]time.Time{},
		served:  map[string]bool{},
		leaving: map[types.UID]bool{},
		there:   map[types.UID]bool{},
	}
	pods := b.client.CoreV1().Pods("default")
	began := make(chan struct{})
	var once sync.Once
	go func() {
		err := source{
			label: "app=" + updated,
			list: func(ctx context.Context, o metav1.ListOptions) (listed, error) {
				list, err := pods.List(ctx, o)
				once.Do(func() { close(began) })
				return list, err
			},
			watch: pods.Watch,
		}.follow(ctx, func(object metav1.Object, gone bool) bool {
			p.see(object.(*corev1.Pod), gone, time.Now())
			return false
		})
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failure = err
	}()
	<-began
	return p
}

// begin starts a phase: its waits are counted again.
func (p *pace) begin(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.waits = now, nil
}

func (p *pace) see(pod *corev1.Pod, gone bool, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gone {
		delete(p.there, pod.UID)
	} else {
		p.there[pod.UID] = true
	}
	node := pod.Spec.NodeName
	switch {
	case node == "":
	case gone || pod.DeletionTimestamp != nil:
		if !p.leaving[pod.UID] {
			p.leaving[pod.UID], p.wanted[node] = true, now
			delete(p.served, node)
		}
		if gone {
			delete(p.leaving, pod.UID)
		}
	case !p.served[node] && isReady(pod):
		since, ok := p.wanted[node]
		if !ok {
			since = p.begun
		}
		p.waits = append(p.waits, now.Sub(since))
		p.served[node] = true
		delete(p.wanted, node)
	}
}

func (p *pace) pods() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.there)
}

// waited is how long half of the nodes waited at most in the phase, and how long 99 of 100.
func (p *pace) waited() (half, most time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != nil {
		return 0, 0, fmt.Errorf("watch the pods: %w", p.failure)
	}
	if len(p.waits) == 0 {
		return 0, 0, nil
	}
	slices.Sort(p.waits)
	return p.waits[len(p.waits)/2], p.waits[len(p.waits)*99/100], nil
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
