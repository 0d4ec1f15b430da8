package podstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/status"
)

// API is an API server with pods only, as far as a node sees one. It tells the pods of its node of every change.
type API struct {
	mu       sync.Mutex
	pods     map[types.UID]*corev1.Pod
	watcher  *pods.Manager
	away     bool // nobody reaches it
	recorded []string
	changed  chan struct{}
}

var _ status.Writer = (*API)(nil)
var _ record.EventRecorder = (*API)(nil)

var errAway = errors.New("connection refused")

// NewAPI returns an API without pods.
func NewAPI() *API {
	return &API{pods: map[types.UID]*corev1.Pod{}, changed: make(chan struct{})}
}

// touched wakes those who wait for a change. The caller holds mu.
func (a *API) touched() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// Watch tells p of all pods, now and later.
func (a *API) Watch(p *pods.Manager) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watcher = p
	if p == nil {
		return
	}
	for _, pod := range a.pods {
		p.PodChanged(pod.DeepCopy())
	}
	p.APIListed()
}

// Leave makes the API unreachable, or reachable again.
func (a *API) Leave(away bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = away
}

func (a *API) tell(pod *corev1.Pod) {
	a.touched()
	if a.watcher != nil {
		a.watcher.PodChanged(pod.DeepCopy())
	}
}

// Create makes a pod like that one, which stays as it is: an agent may have it already.
func (a *API) Create(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod = pod.DeepCopy()
	pod.CreationTimestamp = metav1.Now()
	pod.Status.Phase = cmp.Or(pod.Status.Phase, corev1.PodPending)
	a.pods[pod.UID] = pod
	a.tell(pod)
}

func (a *API) Update(uid types.UID, change func(*corev1.Pod)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pod := a.pods[uid].DeepCopy()
	change(pod)
	a.pods[uid] = pod
	a.tell(pod)
}

// MarkDeleted begins a graceful deletion, as DELETE does for a pod on a node.
func (a *API) MarkDeleted(uid types.UID, grace int64) {
	a.Update(uid, func(pod *corev1.Pod) {
		now := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second))
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
	})
}

func (a *API) PatchStatus(_ context.Context, p status.Pod, _, after *corev1.PodStatus) (*corev1.Pod, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return nil, errAway
	}
	pod, ok := a.pods[p.UID]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), p.Name)
	}
	pod = pod.DeepCopy()
	pod.Status = *after.DeepCopy()
	a.pods[p.UID] = pod
	a.tell(pod)
	return pod.DeepCopy(), nil
}

func (a *API) Delete(_ context.Context, p status.Pod) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.away {
		return errAway
	}
	pod, ok := a.pods[p.UID]
	if !ok {
		return apierrors.NewNotFound(corev1.Resource("pods"), p.Name)
	}
	delete(a.pods, p.UID)
	a.touched()
	if a.watcher != nil {
		a.watcher.PodDeleted(pod)
	}
	return nil
}

// Drop makes the pod vanish from the API without a word to the node first.
func (a *API) Drop(uid types.UID) { _ = a.Delete(context.Background(), status.Pod{UID: uid}) }

func (a *API) Get(uid types.UID) *corev1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pods[uid]
}

// Await waits until the pod (nil when it is not there) is as wanted, and returns it.
func (a *API) Await(t *testing.T, uid types.UID, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for {
		a.mu.Lock()
		pod, changed := a.pods[uid], a.changed
		a.mu.Unlock()
		if ok(pod) {
			return pod
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if pod == nil {
				t.Fatalf("waited in vain for pod %s %s: it is not there. Events:\n%s", uid, what, a.Log())
			}
			t.Fatalf("waited in vain for pod %s %s: its status is %+v. Events:\n%s", uid, what, pod.Status, a.Log())
		}
	}
}

// AwaitEvent waits until an event that has the text was recorded.
func (a *API) AwaitEvent(t *testing.T, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for {
		a.mu.Lock()
		changed := a.changed
		a.mu.Unlock()
		if strings.Contains(a.Log(), text) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("waited in vain for event %q. Events:\n%s", text, a.Log())
		}
	}
}

func (a *API) Log() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.recorded, "\n")
}

// events of one pod, each as "TYPE REASON FIELD MESSAGE".
func (a *API) Event(object runtime.Object, eventType, reason, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ref, ok := object.(*corev1.ObjectReference)
	if !ok {
		panic(errors.New("an event about something that is not a reference"))
	}
	a.recorded = append(a.recorded, strings.Join(strings.Fields(fmt.Sprintf("%s: %s %s %s %s", ref.Name, eventType, reason,
		ref.FieldPath, message)), " "))
	a.touched()
}

func (a *API) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	a.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

func (a *API) AnnotatedEventf(object runtime.Object, _ map[string]string, eventType, reason, format string,
	args ...any) {
	a.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}
