package staticpods

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/status"
)

// mirrorRetry is how long to wait after a mirror could not be written.
const mirrorRetry = 2 * time.Second

// Statuses takes pod statuses to the API; status.Manager is one.
type Statuses interface {
	Set(pod *corev1.Pod, status corev1.PodStatus)
	Delete(pod *corev1.Pod, done func())
	Forget(uid types.UID)
}

// Running are the static pods that a node runs; pods.Manager tells.
type Running interface {
	// StaticNamed returns the static pod of the name, nil if there is none.
	StaticNamed(namespace, name string) *corev1.Pod
	// RunningStatics lists them: one for each name.
	RunningStatics() []*corev1.Pod
	// StaticsKnown reports whether the folder was read.
	StaticsKnown() bool
}

// Seen is what the API shows of a node.
type Seen interface {
	// OwnNode is the node's object, nil if it is not registered.
	OwnNode() *corev1.Node
	// Pod is the node's pod of that name, nil if there is none; AllPods are the node's.
	Pod(namespace, name string) *corev1.Pod
	AllPods() []*corev1.Pod
	// PodsSynced reports whether the pods were listed.
	PodsSynced() bool
}

// MirrorsConfig is what mirrors are made from, and through.
type MirrorsConfig struct {
	Statuses
	Running
	Seen
	Writer MirrorWriter
	Clock  clock.Clock
}

// MirrorKeeper shows static pods in the API. It takes the statuses of all pods, and gives those of static pods to
// their mirrors.
type MirrorKeeper struct {
	MirrorsConfig
	wake chan struct{}

	mu sync.Mutex
	// last are the newest statuses of static pods.
	last map[types.UID]corev1.PodStatus
	// complaint is what was last said of each mirror that cannot be written.
	complaint map[string]string
}

// MirrorWriter makes and deletes mirrors.
type MirrorWriter interface {
	Create(ctx context.Context, mirror *corev1.Pod) error
	// Delete deletes the pod of that name and UID at once; that there is none is no error.
	Delete(ctx context.Context, mirror *corev1.Pod) error
}

// NewMirrorKeeper returns one; Run begins it. Its Running may be set until then.
func NewMirrorKeeper(cfg MirrorsConfig) *MirrorKeeper {
	return &MirrorKeeper{MirrorsConfig: cfg, wake: make(chan struct{}, 1),
		last: map[types.UID]corev1.PodStatus{}, complaint: map[string]string{}}
}

// Set takes the status of a pod.
func (m *MirrorKeeper) Set(pod *corev1.Pod, s corev1.PodStatus) {
	if !IsUID(pod.UID) {
		m.Statuses.Set(pod, s)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last[pod.UID] = s
	if mirror := m.Pod(pod.Namespace, pod.Name); mirror != nil && Mirrors(mirror, pod) {
		m.show(mirror, s)
	}
}

// Forget drops what is kept of a pod.
func (m *MirrorKeeper) Forget(uid types.UID) {
	m.Statuses.Forget(uid)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, uid)
}

// MirrorSeen is told of every mirror that comes, changes or goes.
func (m *MirrorKeeper) MirrorSeen(mirror *corev1.Pod, gone bool) {
	defer m.Poke()
	if gone {
		m.Statuses.Forget(mirror.UID)
		return
	}
	static := m.StaticNamed(mirror.Namespace, mirror.Name)
	if static == nil || !Mirrors(mirror, static) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.last[static.UID]; ok {
		m.show(mirror, s)
	}
}

// show writes a static pod's status to its mirror. The caller holds mu, so that an older status does not follow a
// newer one.
func (m *MirrorKeeper) show(mirror *corev1.Pod, s corev1.PodStatus) {
	s.ObservedGeneration = mirror.Generation
	s.Conditions = append([]corev1.PodCondition(nil), s.Conditions...)
	for i := range s.Conditions {
		s.Conditions[i].ObservedGeneration = mirror.Generation
	}
	m.Statuses.Set(mirror, s)
}

// Poke has Run look again.
func (m *MirrorKeeper) Poke() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run keeps the mirrors until ctx ends.
func (m *MirrorKeeper) Run(ctx context.Context) {
	for {
		var retry <-chan time.Time
		if !m.sync(ctx) {
			retry = m.Clock.After(mirrorRetry)
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
func (m *MirrorKeeper) sync(ctx context.Context) bool {
	owner := m.OwnNode()
	if owner == nil || !m.PodsSynced() || !m.StaticsKnown() {
		// Nobody knows yet what the API shows.
		return false
	}
	done := true
	for _, step := range Plan(m.RunningStatics(), m.AllPods()) {
		var err error
		if step.Delete != nil {
			err = m.Writer.Delete(ctx, step.Delete)
		} else {
			err = m.Writer.Create(ctx, Mirror(step.Create, owner.UID))
		}
		m.tell(ctx, step, err)
		done = done && err == nil
	}
	return done
}

// tell logs what was done, and a failure once for each thing that is wrong.
func (m *MirrorKeeper) tell(ctx context.Context, step Step, err error) {
	logger := klog.FromContext(ctx)
	if err == nil {
		logger.V(2).Info("Brought the mirror of a static pod in line", "step", step.String())
		delete(m.complaint, step.String())
		return
	}
	if text := err.Error(); ctx.Err() == nil && m.complaint[step.String()] != text {
		m.complaint[step.String()] = text
		logger.Error(err, "The API does not show a static pod as it is; the pod itself is not affected", "step",
			step.String())
	}
}

// APIMirrors writes mirrors with the client's rights.
type APIMirrors struct{ Client kubernetes.Interface }

// Create makes a mirror.
func (w APIMirrors) Create(ctx context.Context, mirror *corev1.Pod) error {
	_, err := w.Client.CoreV1().Pods(mirror.Namespace).Create(ctx, mirror, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create the mirror %s/%s: %w", mirror.Namespace, mirror.Name, err)
	}
	return nil
}

// Delete deletes a mirror.
func (w APIMirrors) Delete(ctx context.Context, mirror *corev1.Pod) error {
	pod := status.Pod{Namespace: mirror.Namespace, Name: mirror.Name, UID: mirror.UID}
	if err := (status.APIWriter{Client: w.Client}).Delete(ctx, pod); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the mirror %s/%s: %w", mirror.Namespace, mirror.Name, err)
	}
	return nil
}
