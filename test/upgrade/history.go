package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// history is what became of the pods of a fleet, in the order in which the API tells it, also across other programs.
type history struct {
	client kubernetes.Interface

	mu      sync.Mutex
	last    map[types.UID]moment
	moments []moment
	holds   map[string]map[string]string // what ConfigMaps and Secrets hold, by kind and name
}

// follow writes the history until the context ends.
func follow(ctx context.Context, client kubernetes.Interface) *history {
	h := &history{client: client, last: map[types.UID]moment{}, holds: map[string]map[string]string{}}
	go func() {
		for ctx.Err() == nil {
			h.pods(ctx)
			time.Sleep(probePause)
		}
	}()
	return h
}

// pods follows them until the API does not know any more what was.
func (h *history) pods(ctx context.Context) {
	pods := h.client.CoreV1().Pods("default")
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	there := map[types.UID]bool{}
	for i := range list.Items {
		there[list.Items[i].UID] = true
		h.tell(ctx, &list.Items[i], false)
	}
	h.mu.Lock()
	for uid, m := range h.last {
		if !there[uid] && !m.gone {
			m.first, m.gone, m.available = false, true, false
			h.add(m)
		}
	}
	h.mu.Unlock()
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, o)
		},
	})
	if err != nil {
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if pod, is := e.Object.(*corev1.Pod); is {
			h.tell(ctx, pod, e.Type == watch.Deleted)
		}
	}
}

func (h *history) tell(ctx context.Context, pod *corev1.Pod, gone bool) {
	h.mu.Lock()
	before, known := h.last[pod.UID]
	h.mu.Unlock()
	m := moment{
		first:    !known,
		at:       time.Now(),
		daemon:   pod.Labels["app"],
		node:     nodeOf(pod),
		name:     pod.Name,
		image:    pod.Spec.Containers[0].Image,
		uid:      pod.UID,
		version:  pod.ResourceVersion,
		revision: pod.Labels["everynode.io/revision"],
		going:    pod.DeletionTimestamp != nil,
		gone:     gone,
		reads:    before.reads,
		given:    given(pod),
	}
	m.available = !m.going && !gone && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if !known {
		m.reads = h.readBy(ctx, pod)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(m)
}

func (h *history) add(m moment) {
	h.last[m.uid] = m
	h.moments = append(h.moments, m)
}

// nodeOf is where a pod is or will be.
func nodeOf(pod *corev1.Pod) string {
	a := pod.Spec.Affinity
	if pod.Spec.NodeName != "" || a == nil || a.NodeAffinity == nil {
		return pod.Spec.NodeName
	}
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range t.MatchFields {
			return f.Values[0]
		}
	}
	return ""
}

// readBy is what the volumes of a pod show when it is made. Copies never change, so they are asked for once.
func (h *history) readBy(ctx context.Context, pod *corev1.Pod) (out []string) {
	for _, v := range pod.Spec.Volumes {
		var held map[string]string
		switch {
		case v.ConfigMap != nil:
			held = h.held(ctx, "ConfigMap", v.ConfigMap.Name)
		case v.Secret != nil:
			held = h.held(ctx, "Secret", v.Secret.SecretName)
		}
		out = append(out, slices.Collect(maps.Values(held))...)
	}
	return out
}

func (h *history) held(ctx context.Context, kind, name string) map[string]string {
	key := kind + " " + name
	h.mu.Lock()
	held, known := h.holds[key]
	h.mu.Unlock()
	if known {
		return held
	}
	held = map[string]string{}
	err := wait("read "+key, func() error {
		if ctx.Err() != nil {
			return nil
		}
		var immutable *bool
		if kind == "Secret" {
			o, err := h.client.CoreV1().Secrets("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for k, v := range o.Data {
				held[k] = string(v)
			}
			immutable = o.Immutable
		} else {
			o, err := h.client.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			maps.Copy(held, o.Data)
			immutable = o.Immutable
		}
		if immutable != nil && *immutable {
			h.mu.Lock()
			h.holds[key] = held
			h.mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return map[string]string{"": "what nobody could read: " + err.Error()}
	}
	return held
}

// mark is a place in the history that holds all that the API tells now.
func (h *history) mark(ctx context.Context) (place int, err error) {
	err = wait("the history is up to date", func() error {
		list, err := h.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		there := map[types.UID]bool{}
		for i := range list.Items {
			p := &list.Items[i]
			there[p.UID] = true
			if h.last[p.UID].version != p.ResourceVersion {
				return fmt.Errorf("it knows pod %s as %q", p.Name, h.last[p.UID].version)
			}
		}
		for uid, m := range h.last {
			if !there[uid] && !m.gone {
				return fmt.Errorf("it does not know that pod %s is gone", m.name)
			}
		}
		place = len(h.moments)
		return nil
	})
	return place, err
}

// between is what happened between two places.
func (h *history) between(from, to int) []moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.moments[from:to])
}
