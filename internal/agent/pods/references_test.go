package pods_test

import (
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/agent/pods"
	"github.com/everynode/everynode/internal/agent/pods/podstest"
	"github.com/everynode/everynode/internal/agent/remember"
)

// references is told of pods.
type references struct {
	mu        sync.Mutex
	forgotten []types.UID
}

func (r *references) Follow(*corev1.Pod) {}

func (r *references) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgotten = append(r.forgotten, uid)
}

func (r *references) has(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.forgotten, uid)
}

// What a pod of an earlier run referred to is given up where the API has the pod no more, or it has ended.
func TestWhatPodsOfBeforeReferredToIsGivenUp(t *testing.T) {
	r, a, refs := podstest.NewRuntime(), podstest.NewAPI(), &references{}
	p := podstest.Start(t, r, a, func(c *pods.Config) { c.References = refs })
	gone, runs, ended := podstest.Pod("gone"), podstest.Pod("runs"), podstest.Pod("ended")
	a.Create(runs.DeepCopy())
	a.Create(ended.DeepCopy())
	p.Recall([]remember.Pod{{Pod: gone}, {Pod: runs}, {Pod: ended, Ended: &corev1.PodStatus{Phase: corev1.PodFailed}}})
	a.Watch(p)
	p.RuntimeListed(nil)
	r.Await(t, "sandbox runs", "start runs/main")
	podstest.Eventually(t, "what is over is given up", func() bool { return refs.has(gone.UID) && refs.has(ended.UID) })
	if refs.has(runs.UID) {
		t.Error("what runs is given up")
	}
}
