package nodeauth

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// Pods reads pods as they are now. A missing pod gives a NotFound error.
type Pods interface {
	PodsOnNode(ctx context.Context, node string) ([]corev1.Pod, error)
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
}

// ClientPods reads through an API client.
func ClientPods(client kubernetes.Interface) Pods { return clientPods{client} }

type clientPods struct{ client kubernetes.Interface }

func (c clientPods) PodsOnNode(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

func (c clientPods) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	// A client has no words for what cannot be a name.
	if name == "" || len(content.IsPathSegmentName(name)) > 0 || len(content.IsPathSegmentName(namespace)) > 0 {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	return c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

const (
	// keepFor is how long a node can still read what a deleted pod used.
	keepFor = time.Minute
	// sweepAbove is the number of nodes from which old lists are thrown away.
	sweepAbove = 256
)

// relations knows which objects the pods of a node use.
type relations struct {
	pods  Pods
	clock clock.PassiveClock

	mu    sync.Mutex
	nodes map[string]*relation
}

// relation is what one node's pods use. Its lock is held while the pods are
// listed, so that many requests of a node cause one list.
type relation struct {
	mu     sync.Mutex
	used   references
	listed time.Time // when the list was asked for
}

func newRelations(pods Pods, c clock.PassiveClock) *relations {
	return &relations{pods: pods, clock: c, nodes: map[string]*relation{}}
}

// related tells whether a pod on the node uses an object.
func (r *relations) related(ctx context.Context, node string, ref reference) (bool, error) {
	began := r.clock.Now()
	known := r.of(node, began)
	known.mu.Lock()
	defer known.mu.Unlock()
	fresh := known.used != nil && began.Sub(known.listed) < keepFor
	if fresh && known.used.has(ref) {
		return true, nil
	}
	if fresh && known.listed.After(began) {
		return false, nil // listed while this request waited
	}
	asked := r.clock.Now()
	pods, err := r.pods.PodsOnNode(ctx, node)
	if err != nil {
		return false, err
	}
	known.used, known.listed = referencesOf(pods), asked
	return known.used.has(ref), nil
}

func (r *relations) of(node string, now time.Time) *relation {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.nodes[node]
	if known != nil {
		return known
	}
	if len(r.nodes) >= sweepAbove {
		r.sweep(now)
	}
	known = &relation{}
	r.nodes[node] = known
	return known
}

// sweep forgets old lists. One that is in use right now is left alone.
func (r *relations) sweep(now time.Time) {
	for name, known := range r.nodes {
		if !known.mu.TryLock() {
			continue
		}
		if now.Sub(known.listed) >= keepFor {
			delete(r.nodes, name)
		}
		known.mu.Unlock()
	}
}
