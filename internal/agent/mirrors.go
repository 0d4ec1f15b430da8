package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/staticpods"
	"github.com/everynode/everynode/internal/agent/status"
)

// mirrorRetry is how long to wait after a mirror could not be written.
const mirrorRetry = 2 * time.Second

// mirrors shows static pods in the API. It takes the statuses of all pods, and gives those of static pods to their mirrors.
type mirrors struct {
	Statuses
	node  *node
	write mirrorWriter
	clock clock.Clock
	wake  chan struct{}

	mu sync.Mutex
	// last are the newest statuses of static pods.
	last map[types.UID]corev1.PodStatus
	// complaint is what was last said of each mirror that cannot be written.
	complaint map[string]string
}

// mirrorWriter makes and deletes mirrors.
type mirrorWriter interface {
	Create(ctx context.Context, mirror *corev1.Pod) error
	// Delete deletes the pod of that name and UID at once; that there is none is no error.
	Delete(ctx context.Context, mirror *corev1.Pod) error
}

func newMirrors(n *node, clk clock.Clock) *mirrors {
	return &mirrors{Statuses: n.statuses, node: n, write: apiMirrors{n}, clock: clk, wake: make(chan struct{}, 1),
		last: map[types.UID]corev1.PodStatus{}, complaint: map[string]string{}}
}

// Set takes the status of a pod.
func (m *mirrors) Set(pod *corev1.Pod, s corev1.PodStatus) {
	if !staticpods.IsUID(pod.UID) {
		m.Statuses.Set(pod, s)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[pod.UID] = s
	if mirror := m.node.sources.pod(pod.Namespace, pod.Name); mirror != nil && staticpods.Mirrors(mirror, pod) {
		m.show(mirror, s)
	}
}

// Forget drops what is kept of a pod.
func (m *mirrors) Forget(uid types.UID) {
	m.Statuses.Forget(uid)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, uid)
}

// seen is told of every mirror that comes, changes or goes.
func (m *mirrors) seen(mirror *corev1.Pod, gone bool) {
	defer m.poke()
	if gone {
		m.Statuses.Forget(mirror.UID)
		return
	}
	static := m.node.pods.staticNamed(mirror.Namespace, mirror.Name)
	if static == nil || !staticpods.Mirrors(mirror, static) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.last[static.UID]; ok {
		m.show(mirror, s)
	}
}

// show writes a static pod's status to its mirror. The caller holds mu, so that an older status does not follow a newer one.
func (m *mirrors) show(mirror *corev1.Pod, s corev1.PodStatus) {
	s.ObservedGeneration = mirror.Generation
	s.Conditions = append([]corev1.PodCondition(nil), s.Conditions...)
	for i := range s.Conditions {
		s.Conditions[i].ObservedGeneration = mirror.Generation
	}
	m.Statuses.Set(mirror, s)
}

// poke has run look again.
func (m *mirrors) poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// run keeps the mirrors until ctx ends.
func (m *mirrors) run(ctx context.Context) {
	for {
		var retry <-chan time.Time
		if !m.sync(ctx) {
			retry = m.clock.After(mirrorRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-retry:
		}
	}
}

// sync makes and deletes mirrors as the plan says; false means that something is left to do.
func (m *mirrors) sync(ctx context.Context) bool {
	owner := m.node.sources.ownNode()
	if owner == nil || !m.node.sources.pods.HasSynced() || !m.node.pods.staticsKnown() {
		// Nobody knows yet what the API shows.
		return false
	}
	done := true
	for _, step := range staticpods.Plan(m.node.pods.runningStatics(), m.node.sources.allPods()) {
		var err error
		if step.Delete != nil {
			err = m.write.Delete(ctx, step.Delete)
		} else {
			err = m.write.Create(ctx, staticpods.Mirror(step.Create, owner.UID))
		}
		m.tell(ctx, step, err)
		done = done && err == nil
	}
	return done
}

// tell logs what was done, and a failure once for each thing that is wrong.
func (m *mirrors) tell(ctx context.Context, step staticpods.Step, err error) {
	logger := klog.FromContext(ctx)
	if err == nil {
		logger.V(2).Info("Brought the mirror of a static pod in line", "step", step.String())
		delete(m.complaint, step.String())
		return
	}
	if text := err.Error(); ctx.Err() == nil && m.complaint[step.String()] != text {
		m.complaint[step.String()] = text
		logger.Error(err, "The API does not show a static pod as it is; the pod itself is not affected", "step", step.String())
	}
}

// apiMirrors writes mirrors with the node's own rights.
type apiMirrors struct{ node *node }

// Create makes a mirror.
func (w apiMirrors) Create(ctx context.Context, mirror *corev1.Pod) error {
	_, err := w.node.client.CoreV1().Pods(mirror.Namespace).Create(ctx, mirror, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the mirror %s/%s: %w", mirror.Namespace, mirror.Name, err)
	}
	return nil
}

// Delete deletes a mirror.
func (w apiMirrors) Delete(ctx context.Context, mirror *corev1.Pod) error {
	pod := status.Pod{Namespace: mirror.Namespace, Name: mirror.Name, UID: mirror.UID}
	if err := (status.APIWriter{Client: w.node.client}).Delete(ctx, pod); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the mirror %s/%s: %w", mirror.Namespace, mirror.Name, err)
	}
	return nil
}
