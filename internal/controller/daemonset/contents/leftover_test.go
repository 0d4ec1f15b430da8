package contents

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
)

// TestNoCopyOutlivesItsList: Secrets that are no content any more are read until their copies are gone, also where
// these are seen after the lists by a controller that starts.
func TestNoCopyOutlivesItsList(t *testing.T) {
	w := newWorld(t, careful)
	w.secretsAreNoContentAnyMore()
	for range 100 {
		w.second()
	}
	w.start(false)
	w.readKind(content.ConfigMap)
	w.pass(time.Minute) // until Secrets are read too
	w.readKind(content.Secret)
	for range 10 {
		w.pass(30 * time.Second)
	}
	w.wantNoSecretCopies()
}

// TestACopyThatWasMadeWithoutAnAnswerGoes: a copy of a Secret is on its list before anybody knows whether it was made.
// So it is found, and deleted, also where Secrets are no content any more by then.
func TestACopyThatWasMadeWithoutAnAnswerGoes(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			w := newWorldWith(t, careful, func(*Job) string { return "not yet" })
			w.refuse = nil
			lost := 0
			w.interrupts = func(o metav1.Object) (ends, made bool) {
				if _, secret := o.(*corev1.Secret); secret && lost == 0 {
					lost++
					return true, true
				}
				return false, true
			}
			for range 20 {
				if lost == 0 {
					w.tick(time.Second)
					w.settle()
				}
			}
			if lost == 0 {
				t.Fatal("no copy of the Secret was made")
			}
			w.secretsAreNoContentAnyMore()
			if restart {
				w.start(true)
			}
			for range 100 {
				w.second()
			}
			for range 10 {
				w.pass(30 * time.Second)
			}
			w.wantNoSecretCopies()
		})
	}
}

// TestACopyIsFoundThatNobodySpeaksOf: copies stay for a while after the last pod that refers to them, where content is
// no part of revisions any more. A controller that starts then finds them by the rollout, which stays as long.
func TestACopyIsFoundThatNobodySpeaksOf(t *testing.T) {
	for name, policy := range map[string]string{"no policy": "", "a policy without content": plain} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, careful)
			w.pass(time.Hour)
			w.wantRuns(map[string]int{"good": 5})
			w.policy = nil
			if policy != "" {
				w.policy = w.compile(policy)
			}
			w.tellPolicy()
			w.edit()
			w.pass(10 * time.Second)
			if marked(w) > 0 || w.copies() == 0 || w.stored == nil || w.stored.Content == nil {
				t.Fatalf("%d pods refer to copies, of which there are %d, and the rollout says %+v", marked(w), w.copies(),
					w.stored)
			}
			const told = "content is off, and copies are still there; they go two minutes after the last pod that refers to them"
			if said := w.stored.Content.Lines(); policy != "" && !slices.Contains(said, told) {
				t.Errorf("people are told %q", said)
			}
			w.start(false)
			w.pass(10 * time.Minute)
			if w.stored == nil || w.stored.Content == nil {
				t.Error("before the namespace was read the rollout speaks of no copies any more")
			}
			w.read()
			w.settle()
			for range 10 {
				w.pass(time.Minute)
			}
			if len(w.objects) > 3 { // the author's, and the key
				t.Errorf("there are %v", sorted(w.objects))
			}
			if w.stored != nil && (policy == "" || w.stored.Content != nil) {
				t.Errorf("the rollout says %+v", w.stored)
			}
			if w.reading[content.ConfigMap] {
				t.Error("the namespace is read for nothing")
			}
		})
	}
}

// TestACopyIsFoundThatNoStatusNames: a controller ends when it has made the first copies, and before the rollout names a
// revision that has them. Content is turned off then. The next controller finds the copies all the same.
func TestACopyIsFoundThatNoStatusNames(t *testing.T) {
	for name, policy := range map[string]string{"no policy": "", "a policy without content": plain} {
		t.Run(name, func(t *testing.T) {
			w := newSet(t)
			w.readable = true
			w.readKind(content.ConfigMap)
			w.readKind(content.Secret)
			for w.copies() == 0 {
				jobs, actions := w.work()
				for _, j := range jobs {
					if r := w.carryOut(j); len(j.Make) == 0 {
						w.book.Tell(r)
					}
				}
				for _, a := range actions {
					w.act(a)
				}
			}
			if st := w.stored; st == nil || st.TargetRevision != "" ||
				!slices.Contains(st.Content.Lines(), "copies of the content are being made") {
				t.Fatalf("the rollout is stored as %+v", st)
			}
			w.policy, w.assigned = nil, nil
			if policy != "" {
				w.policy = w.compile(policy)
			}
			w.start(true)
			for range 10 {
				w.pass(time.Minute)
			}
			if w.copies() > 0 || w.reading[content.ConfigMap] {
				t.Errorf("%d copies are left; the namespace is read: %t", w.copies(), w.reading[content.ConfigMap])
			}
			if policy == "" && w.stored != nil || policy != "" && w.stored.Content != nil {
				t.Errorf("the rollout says %+v", w.stored)
			}
		})
	}
}

// TestCopiesGoWithAStableRevision: no pod has content any more, and copies of the stable revision are kept until
// another one is stable, which no pod tells of.
func TestCopiesGoWithAStableRevision(t *testing.T) {
	w := newWorld(t, soaking)
	w.pass(time.Hour)
	w.edit()
	w.policy = w.compile(withoutContent(soaking))
	w.tellPolicy()
	w.pass(6 * time.Minute)
	for _, node := range slices.Sorted(maps.Keys(w.pods)) { // the canary has kept its content
		if content.IDOf(w.pods[node].Revision) != "" {
			w.book.Step(podGone(w, node))
		}
	}
	w.pass(10 * time.Second)
	if marked(w) > 0 || w.copies() == 0 || content.IDOf(w.status().StableRevision) == "" {
		t.Fatalf("%d pods refer to copies, of which there are %d; stable is %s", marked(w), w.copies(),
			w.status().StableRevision)
	}
	for range 10 {
		w.pass(5 * time.Minute)
	}
	w.wantPhase(complete, "5 of 5")
	if w.copies() > 0 || w.reading[content.ConfigMap] {
		t.Errorf("%d copies stay; the namespace is read: %t", w.copies(), w.reading[content.ConfigMap])
	}
}

func (w *world) secretsAreNoContentAnyMore() {
	w.policy = w.compile(`
waves: [{name: canary, count: 1}]
failure: {max: 0, min: 1, then: Rollback}
content: {configMaps: Referenced, settle: 5s}`)
	w.tellPolicy()
}

func (w *world) wantNoSecretCopies() {
	w.Helper()
	for ref, o := range w.objects {
		if _, secret := o.(*corev1.Secret); secret && o.GetLabels()[content.Label] == content.IsCopy {
			w.Errorf("%s is left", ref)
		}
	}
}
