package pods

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/remember"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Book is what the node remembers of its pods. It is safe for concurrent use.
type Book struct {
	// note says that there is something new; nil for nobody.
	note func()

	mu   sync.Mutex
	pods map[types.UID]remember.Pod
}

// NewBook returns a book with what an earlier run knew. The function is told, without blocking it, that there is
// something new to keep; nil for nobody.
func NewBook(known []remember.Pod, note func()) *Book {
	b := &Book{note: note, pods: map[types.UID]remember.Pod{}}
	for _, pod := range known {
		b.pods[pod.Pod.UID] = pod
	}
	return b
}

// List returns the pods as they are remembered now.
func (b *Book) List() []remember.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]remember.Pod, 0, len(b.pods))
	for _, pod := range b.pods {
		out = append(out, pod)
	}
	return out
}

// seen is told of every pod that the API shows.
func (b *Book) seen(pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.pods[pod.UID]
	b.pods[pod.UID] = remember.Pod{Pod: pod, Ended: before.Ended}
	if before.Pod == nil || matters(before.Pod, pod) {
		b.tell()
	}
}

// matters says whether the change makes a difference to the next start. Statuses change all the time, and most of what
// they say is seen in the runtime.
func matters(before, after *corev1.Pod) bool {
	return before.Status.Phase != after.Status.Phase ||
		!before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
		!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) ||
		!equality.Semantic.DeepEqual(before.Spec, after.Spec)
}

// ended is told how a pod ended.
func (b *Book) ended(uid types.UID, status *corev1.PodStatus) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pod, ok := b.pods[uid]
	if !ok || podfacts.IsTerminal(pod.Pod) || pod.Ended != nil {
		return
	}
	pod.Ended = status.DeepCopy()
	b.pods[uid] = pod
	b.tell()
}

// leaves is told of a pod that the API does not have any more and the node still may. It is remembered as one that is
// being deleted: it has its room for as long, and does not start again where the API does not answer.
func (b *Book) leaves(pod *corev1.Pod, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if pod.DeletionTimestamp == nil {
		pod = pod.DeepCopy()
		pod.DeletionTimestamp = &metav1.Time{Time: now}
	}
	b.pods[pod.UID] = remember.Pod{Pod: pod, Ended: b.pods[pod.UID].Ended}
	b.tell()
}

// forget is told of every pod that is no more.
func (b *Book) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.pods[uid]; ok {
		delete(b.pods, uid)
		b.tell()
	}
}

func (b *Book) tell() {
	if b.note != nil {
		b.note()
	}
}
