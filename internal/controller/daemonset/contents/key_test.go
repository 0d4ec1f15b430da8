package contents

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/change/content"
)

const keyGone = "Secret everynode-content-key, with which copies of Secrets are checked, is gone"

// anotherKey is one that nobody made copies with.
func (w *world) anotherKey() {
	w.put(&corev1.Secret{ObjectMeta: w.objects[content.KeyRef].(*corev1.Secret).ObjectMeta, Immutable: new(true),
		Data: map[string][]byte{"key": []byte(strings.Repeat("x", 32))}})
}

// The key with which copies are checked goes, or becomes another one, while no controller runs. It is said that it is
// the key, no other is made, and nothing is given that cannot be checked. All goes on when it is put back, and nobody
// is hindered to do that.
func TestAKeyThatIsLostWhileNoControllerRuns(t *testing.T) {
	for name, lose := range map[string]func(w *world) string{
		"gone": func(w *world) string {
			delete(w.objects, content.KeyRef)
			return keyGone
		},
		"another": func(w *world) string {
			w.tick(time.Minute)
			w.anotherKey()
			return "does not fit Secret everynode-content-key, which is younger"
		},
		"no key": func(w *world) string {
			w.put(&corev1.Secret{ObjectMeta: w.objects[content.KeyRef].(*corev1.Secret).ObjectMeta})
			return keyGone
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, careful)
			w.pass(10 * time.Minute)
			w.wantRuns(map[string]int{"good": 5})
			before, kept, copies := w.restarts, w.objects[content.KeyRef].(*corev1.Secret).DeepCopy(), w.copies()
			words := lose(w)
			lost := w.objects[content.KeyRef]
			w.start(true)
			w.write("new")
			w.pass(time.Minute)
			w.book.Step(podGone(w, "n3"))
			w.pass(10 * time.Minute)
			w.wantMessage(words)
			w.wantMessage("put it back from a backup")
			if p, made := w.pods["n3"]; made || w.restarts != before {
				t.Errorf("the pod that was lost is %+v; %d are made", p, w.restarts-before)
			}
			if w.objects[content.KeyRef] != lost || w.copies() != copies {
				t.Errorf("the key is %v, and was %v; there are %d copies", w.objects[content.KeyRef], lost, w.copies())
			}
			if lost != nil { // it is immutable, so who puts the other one back deletes it
				w.drop(content.KeyRef)
				w.pass(time.Minute)
				if w.objects[content.KeyRef] != nil {
					t.Error("the key that fits no copy is made again")
				}
				w.wantMessage(keyGone)
			}
			w.put(kept)
			w.settle()
			w.pass(10 * time.Minute)
			w.wantPhase(complete, "5 of 5")
			w.wantRuns(map[string]int{"new": 5})
		})
	}
}

// All that the template names is missing, so that each copy is empty and fits any key: that it is another one is told by
// the list of them, and nobody is hindered to put the first one back.
func TestAnotherKeyWhereAllIsMissing(t *testing.T) {
	w := newWorld(t, careful)
	w.drop(confRef)
	w.drop(content.Ref{Kind: content.Secret, Name: "token"})
	w.pass(10 * time.Minute)
	kept := w.objects[content.KeyRef].(*corev1.Secret).DeepCopy()
	w.tick(time.Minute)
	w.anotherKey()
	w.start(true)
	w.edit()
	w.pass(time.Minute)
	list := content.ManifestName("agent", content.IDOf(w.status().StableRevision))
	w.wantMessage("ConfigMap " + list + " does not fit Secret everynode-content-key, which is younger")
	w.wantMessage("put it back from a backup")
	w.drop(content.KeyRef)
	w.pass(time.Minute)
	if w.objects[content.KeyRef] != nil {
		t.Error("the key that fits nothing is made again")
	}
	w.wantMessage(keyGone)
	w.put(kept)
	w.settle()
	w.pass(10 * time.Minute)
	w.wantPhase(complete, "5 of 5")
}

// Another DaemonSet of the namespace has no key made either where copies of this one are checked with a lost one.
func TestNoKeyIsMadeOverTheCopiesOfOthers(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(time.Minute)
	delete(w.objects, content.KeyRef)
	w.start(true)
	other := w.book.set("other")
	other.object, other.info, other.rules = w.set.DeepCopy(), w.book.sets[w.set.UID].info, w.book.sets[w.set.UID].rules
	other.object.UID, other.refs = "other", []content.Ref{{Kind: content.Secret, Name: "token"}}
	if w.book.wantsKey(other, w.book.spaces["ns"]) || w.objects[content.KeyRef] != nil {
		t.Error("a key is made")
	}
}

// Without a backup of the key content is turned off, in steps, and on again, in steps: with a key that is made then, or
// with the one that is there. The same where a pod is lost first.
func TestGoingOnWithoutTheKey(t *testing.T) {
	for _, another := range []bool{false, true} {
		w := newWorld(t, careful)
		w.pass(10 * time.Minute)
		w.tick(time.Minute)
		w.anotherKey()
		if !another {
			delete(w.objects, content.KeyRef)
		}
		w.start(true)
		w.book.Step(podGone(w, "n3"))
		w.pass(10 * time.Minute)
		before := w.restarts
		w.policy = w.compile(plain)
		w.tellPolicy()
		w.pass(10 * time.Minute)
		w.wantPhase(complete, "5 of 5")
		w.wantRuns(map[string]int{"good": 5})
		if w.restarts != before+1 || w.objects[content.KeyRef] != nil != another {
			t.Errorf("with content off %d pods are made, want the one that was lost; the key is %v", w.restarts-before,
				w.objects[content.KeyRef])
		}
		before = w.restarts
		w.policy = w.compile(careful)
		w.tellPolicy()
		w.write("new")
		w.pass(10 * time.Minute)
		w.wantPhase(complete, "5 of 5")
		w.wantRuns(map[string]int{"new": 5})
		if w.restarts != before+5 || w.copies() != 3 {
			t.Errorf("with content on again %d pods are made, and there are %d copies; want 5, and those of one content",
				w.restarts-before, w.copies())
		}
	}
}

// Who deletes the key and puts another one in its place, with copies that fit that one under the names of before, has
// nobody read them: what is stable names what it holds by a hash.
func TestCopiesThatFitAnotherKeyAreNotUsed(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(10 * time.Minute)
	stable := w.status().StableRevision
	w.tick(time.Minute)
	w.anotherKey()
	key := w.objects[content.KeyRef].(*corev1.Secret).Data["key"]
	evil := map[content.Ref]*content.Object{
		confRef: {Ref: confRef, Data: map[string]string{"agent.conf": "evil"}, Immutable: true},
		{Kind: content.Secret, Name: "token"}: {Ref: content.Ref{Kind: content.Secret, Name: "token"},
			Binary: map[string][]byte{"token": []byte("evil")}, Immutable: true},
	}
	refs := content.Refs(&w.set.Spec.Template.Spec)
	forged, err := content.Of(key, "agent", refs, func(ref content.Ref) ([]byte, error) {
		return content.Hash(key, "agent", ref, evil[ref])
	})
	if err != nil {
		t.Fatal(err)
	}
	s := w.book.sets[w.set.UID]
	for _, m := range forged.Members {
		w.objects[m.CopyRef()] = s.copyOf(m, evil[m.Ref])
	}
	forged.ID = content.IDOf(stable) // the list says that it is the stable revision's
	data, err := forged.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	list := &corev1.ConfigMap{Data: data, Immutable: new(true),
		ObjectMeta: s.metaFor(content.ManifestName("agent", forged.ID), content.IsManifest)}
	w.put(list)
	w.refuse = func(*Job) string { return "" }
	w.start(true)
	before := w.restarts
	w.book.Step(podGone(w, "n3"))
	w.pass(10 * time.Minute)
	w.wantPhase(paused, list.Name+" was changed after it was made")
	if w.restarts != before {
		t.Errorf("%d pods are made, which read %s", w.restarts-before, w.reads(w.pods["n3"].Revision))
	}
}
