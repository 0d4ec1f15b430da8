package pins

import (
	"maps"
	"testing"
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// A controller starts while neither policies nor rollouts can be read, and the tag names other bits by now. A pod that
// is lost comes back with the digests that others were made with. Where none was made with any it is as written, and
// waits for nobody.
func TestDigestsOutliveAStartWithoutSight(t *testing.T) {
	for _, policy := range []string{pinned, `{waves: [{name: canary, count: 2}]}`} {
		want := map[string]int{byTag(1): 1, byDigest(1): 5}
		lost := byDigest(1)
		if policy != pinned {
			want, lost = map[string]int{byTag(1): 6}, byTag(1)
		}
		w := newWorld(t, policy)
		w.start()
		w.pass(10 * time.Minute)
		w.wantRuns(want)
		w.registry["demo:v1"] = sha(9)
		w.unread = true
		w.start()
		for range 3 {
			w.pass(10 * time.Minute)
			w.loseOne(lost)
			w.settle()
		}
		if policy != pinned {
			want = map[string]int{byTag(1): 3, byTag(9): 3}
		}
		w.wantRuns(want)
		if at, ok := w.book.NextTick(); ok && !at.After(w.now) {
			t.Errorf("it has something to do at %s, and it is %s", at, w.now)
		}
		w.unread = false // and what was guessed is forgotten
		w.book.Step(fact.RolloutGone("ds"))
		w.tellPolicy()
		w.settle()
		w.pass(10 * time.Minute)
		w.wantRuns(want)
	}
}

// loseOne has a pod vanish that runs something.
func (w *world) loseOne(that string) {
	for uid, p := range maps.Clone(w.pods) {
		if p.Spec.Containers[0].Image+" "+p.Status.ContainerStatuses[0].ImageID == that {
			delete(w.pods, uid)
			w.book.Step(fact.PodGone(uid))
			return
		}
	}
}
