package status

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	"github.com/everynode/everynode/internal/objects/objectversion"
)

// How many pods are written at one time, and how long a failed write waits before the next try.
const (
	writers  = 4
	minRetry = 200 * time.Millisecond
	maxRetry = 10 * time.Second
	// logEach is which failures of a pod in a row are logged after the first: one in five minutes, while a server may be
	// away for days.
	logEach = 30
)

// Writer changes pods in the API. That the API has no pod of that name and UID is a NotFound error.
type Writer interface {
	// PatchStatus changes the status of the pod from before to after and returns the pod.
	PatchStatus(ctx context.Context, pod Pod, before, after *corev1.PodStatus) (*corev1.Pod, error)
	// Delete deletes the pod at once.
	Delete(ctx context.Context, pod Pod) error
}

// Pod names one pod.
type Pod struct {
	Namespace, Name string
	UID             types.UID
}

// Manager keeps and writes statuses. It is safe for concurrent use.
type Manager struct {
	writer Writer
	queue  workqueue.TypedRateLimitingInterface[types.UID]

	mu   sync.Mutex
	pods map[types.UID]*record
}

type record struct {
	pod Pod
	// written is what the API has, as far as is known, at version; wanted is what it should have.
	written, wanted corev1.PodStatus
	version         string
	dirty           bool
	delete          bool
	deleted         func()
}

// New returns a Manager; Run starts it.
func New(writer Writer) *Manager {
	return &Manager{
		writer: writer,
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](minRetry, maxRetry),
			workqueue.TypedRateLimitingQueueConfig[types.UID]{Name: "pod_status"}),
		pods: map[types.UID]*record{},
	}
}

// Set makes status the pod's newest. Pod is the API object it was made for: if it shows that somebody else changed the
// status that was written last, it is written again.
func (m *Manager) Set(pod *corev1.Pod, status corev1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(pod)
	meddled := r.meddled(pod)
	if objectversion.Older(r.version, pod.ResourceVersion) {
		r.written, r.version = pod.Status, pod.ResourceVersion
	}
	if !meddled && equality.Semantic.DeepEqual(r.wanted, status) {
		return
	}
	r.wanted, r.dirty = status, true
	m.queue.Add(pod.UID)
}

// meddled says whether pod is newer than what was written last and has another status.
func (r *record) meddled(pod *corev1.Pod) bool {
	return objectversion.Older(r.version, pod.ResourceVersion) && !equality.Semantic.DeepEqual(pod.Status, r.written)
}

// Get returns the pod's newest status, written or not.
func (m *Manager) Get(uid types.UID) (corev1.PodStatus, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.pods[uid]; ok {
		return r.wanted, true
	}
	return corev1.PodStatus{}, false
}

// Reported says whether the API has all statuses, as far as is known.
func (m *Manager) Reported() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.pods {
		if r.dirty || r.delete {
			return false
		}
	}
	return true
}

// Delete deletes the pod from the API after its newest status was written. Done is called once it is not there any
// more.
func (m *Manager) Delete(pod *corev1.Pod, done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.record(pod)
	r.delete, r.deleted = true, done
	m.queue.Add(pod.UID)
}

// Forget drops what is kept of the pod.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
	m.queue.Forget(uid)
}

func (m *Manager) record(pod *corev1.Pod) *record {
	r, ok := m.pods[pod.UID]
	if !ok {
		r = &record{pod: Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, written: pod.Status, wanted: pod.Status,
			version: pod.ResourceVersion}
		m.pods[pod.UID] = r
	}
	return r
}

// Run writes until ctx ends.
func (m *Manager) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for m.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	m.queue.ShutDown()
	wg.Wait()
}

func (m *Manager) next(ctx context.Context) bool {
	uid, shutdown := m.queue.Get()
	if shutdown {
		return false
	}
	defer m.queue.Done(uid)
	if err := m.write(ctx, uid); err != nil {
		if failures := m.queue.NumRequeues(uid); ctx.Err() == nil && failures%logEach == 0 {
			klog.FromContext(ctx).Info("Could not report a pod's status, will try again", "podUID", uid, "err", err,
				"failures", failures+1)
		}
		m.queue.AddRateLimited(uid)
		return true
	}
	m.queue.Forget(uid)
	return true
}

func (m *Manager) write(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	r, ok := m.pods[uid]
	if !ok {
		m.mu.Unlock()
		return nil
	}
	pod, before, after, dirty, remove, done := r.pod, r.written, r.wanted, r.dirty, r.delete, r.deleted
	m.mu.Unlock()
	if dirty {
		err := m.patch(ctx, pod, before, after)
		if gone(err) {
			return m.finish(uid, done)
		}
		if err != nil {
			return err
		}
	}
	if !remove {
		return nil
	}
	if err := m.writer.Delete(ctx, pod); err != nil && !gone(err) {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return m.finish(uid, done)
}

func (m *Manager) patch(ctx context.Context, pod Pod, before, after corev1.PodStatus) error {
	sent := after
	sent.Conditions = merged(before.Conditions, after.Conditions)
	// Which claims the pod has got is not for the node to say, and a status that changes it is refused.
	sent.ResourceClaimStatuses = before.ResourceClaimStatuses
	sent.ExtendedResourceClaimStatus = before.ExtendedResourceClaimStatus
	got, err := m.writer.PatchStatus(ctx, pod, &before, &sent)
	if err != nil {
		return fmt.Errorf("patch the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.pods[pod.UID]
	switch {
	case !ok:
		return nil
	case objectversion.Older(got.ResourceVersion, r.version):
		// Somebody changed the pod after this, and that was seen before the answer.
		r.dirty = true
		m.queue.Add(pod.UID)
		return nil
	}
	// What the API made of it is what the next patch is reckoned from.
	r.written, r.version = got.Status, got.ResourceVersion
	if overruled(&got.Status, &after) {
		r.dirty = true
		return fmt.Errorf(
			"patch the status of pod %s/%s: its conditions were changed before", pod.Namespace, pod.Name,
		)
	}
	r.dirty = !equality.Semantic.DeepEqual(r.wanted, after)
	if r.dirty {
		m.queue.Add(pod.UID)
	}
	return nil
}

// merged are the conditions to write: the node's own as after has them, and those of
// others as the API has them, though after was made when they were not there yet.
func merged(before, after []corev1.PodCondition) []corev1.PodCondition {
	out := slices.Clone(after)
	for _, c := range before {
		if own(c) {
			continue
		}
		i := slices.IndexFunc(out, func(o corev1.PodCondition) bool { return o.Type == c.Type })
		switch {
		case i < 0:
			out = append(out, c)
		case !own(out[i]):
			out[i] = c
		}
	}
	return out
}

// own says whether it is the node that sets this condition.
func own(c corev1.PodCondition) bool {
	switch c.Type {
	case corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized, corev1.PodReadyToStartContainers,
		corev1.PodResizePending, corev1.PodResizeInProgress, content.MountedCondition, fetch.Condition,
		nodestartup.WaitsCondition:
		return true
	case corev1.DisruptionTarget:
		return c.Reason == corev1.PodReasonTerminationByKubelet // others name other reasons
	}
	return false
}

// overruled says whether the node's own conditions are not what they were to be: a patch has only what differs from the
// last known status. Somebody else had changed that meanwhile, or an earlier patch had, though its answer was an error.
func overruled(got, want *corev1.PodStatus) bool {
	return lacks(got.Conditions, want.Conditions) || lacks(want.Conditions, got.Conditions)
}

// lacks reports whether one of the node's own conditions of a list is not, or otherwise, in another one.
func lacks(other, list []corev1.PodCondition) bool {
	return slices.ContainsFunc(list, func(c corev1.PodCondition) bool {
		return own(c) && !slices.ContainsFunc(other, func(o corev1.PodCondition) bool {
			return o.Type == c.Type && o.Status == c.Status && o.Reason == c.Reason && o.Message == c.Message
		})
	})
}

func (m *Manager) finish(uid types.UID, done func()) error {
	m.Forget(uid)
	if done != nil {
		done()
	}
	return nil
}

// gone says that the API no longer has the pod.
func gone(err error) bool { return apierrors.IsNotFound(err) }
