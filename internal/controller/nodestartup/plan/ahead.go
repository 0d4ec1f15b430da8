package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/objects/pod"
)

// Ahead remembers since when pods of a node are ready that say a time to come, as the node's clock is ahead: each look
// would take them for ready since then.
type Ahead map[types.UID]readiness

// readiness is since when a pod says that it is ready, and since when it was seen to say so.
type readiness struct{ says, seen time.Time }

// Vouch returns the pod, or one like it that is ready since it was first seen so.
func (a Ahead) Vouch(p *corev1.Pod, now time.Time) *corev1.Pod {
	says, ready := pod.ReadySince(p)
	known, is := a[p.UID]
	is = is && ready && known.says.Equal(says)
	switch {
	case !is && (!ready || !says.After(now)):
		delete(a, p.UID)
		return p
	case !is:
		// Rounded up, as the time is at which a node was closed: it is not before that.
		known = readiness{says, now.Add(time.Second - 1).Truncate(time.Second)}
		a[p.UID] = known
	}
	p = p.DeepCopy()
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			c.LastTransitionTime = metav1.NewTime(known.seen)
		}
	}
	return p
}
