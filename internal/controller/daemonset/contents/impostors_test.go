package contents

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/change/content"
)

// inPlaceOf has somebody who may write ConfigMaps delete one, and make another of its name.
func (w *world) inPlaceOf(ref content.Ref, data map[string]string, immutable bool, labels map[string]string) {
	w.Helper()
	have := w.objects[ref]
	delete(w.objects, ref)
	w.book.Tell(Object{Object: have, Gone: true})
	w.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: ref.Name, Labels: labels},
		Data: data, Immutable: ptr.To(immutable)})
	w.settle()
}

// falseList is what a list says, with another Secret.
func falseList(list metav1.Object) map[string]string {
	out := map[string]string{}
	for key, value := range list.(*corev1.ConfigMap).Data {
		out[key] = strings.ReplaceAll(value, "token", "other")
	}
	return out
}

// loses has a node lose its pod, and returns what the one reads that is made in its place; "" if none is.
func (w *world) loses(node string) string {
	w.book.Step(podGone(w, node))
	w.pass(time.Minute)
	if p, made := w.pods[node]; made {
		return w.reads(p.Revision)
	}
	return ""
}

// What somebody puts in place of a copy belongs to nobody, as kubectl makes it: no pod reads it, and when it is deleted
// the copy is made again as it was.
func TestWhatBelongsToNobodyIsNoCopy(t *testing.T) {
	evil := map[string]string{"agent.conf": "evil", "other": "same"}
	for name, c := range map[string]struct {
		immutable bool
		labels    map[string]string
		restart   bool
	}{
		"mutable":                    {},
		"immutable":                  {immutable: true},
		"immutable with our label":   {immutable: true, labels: map[string]string{content.Label: content.IsCopy}},
		"seen by another controller": {immutable: true, restart: true},
	} {
		w := newWorld(t, careful)
		w.pass(10 * time.Minute)
		ref := w.copyOf(w.status().StableRevision)
		w.inPlaceOf(ref, evil, c.immutable, c.labels)
		if c.restart {
			w.start(true)
		}
		w.pass(time.Minute)
		if got := w.loses("n3"); got != "" {
			t.Errorf("%s: a pod is made that reads %s", name, got)
		}
		if len(w.objects[ref].GetOwnerReferences()) > 0 {
			t.Errorf("%s: it is owned by the DaemonSet now", name)
		}
		w.wantMessage(ref.Name + " was changed after it was made")
		w.drop(ref)
		w.pass(2 * time.Minute)
		w.wantPhase(complete, "5 of 5")
		w.wantRuns(map[string]int{"good": 5})
		if m, _ := w.objects[ref].(*corev1.ConfigMap); m == nil || m.Data["agent.conf"] != "good" {
			t.Errorf("%s: the copy that is made again holds %v", name, m.Data)
		}
	}
}

// A copy that is put in place again and again is made again from the last one that was genuine, though nothing else
// holds that any more.
func TestACopyIsMadeAgainAsItWas(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(10 * time.Minute)
	ref := w.copyOf(w.status().StableRevision)
	w.write("bad") // what nodes go back from
	w.pass(time.Minute)
	for range 3 {
		w.inPlaceOf(ref, map[string]string{"agent.conf": "evil"}, true, map[string]string{content.Label: content.IsCopy})
		w.drop(ref)
	}
	w.pass(time.Minute)
	if m := w.objects[ref].(*corev1.ConfigMap); m.Data["agent.conf"] != "good" {
		t.Errorf("it holds %v", m.Data)
	}
	if got := w.loses("n3"); got != "good" {
		t.Errorf("a pod that is lost comes back with %q", got)
	}
}

// So it is with a list: a false one stops what is new, and when it is deleted the true one is made again.
func TestAFalseListIsNotForEver(t *testing.T) {
	for _, restart := range []bool{false, true} {
		w := newWorld(t, careful)
		w.pass(10 * time.Minute)
		id := content.IDOf(w.status().StableRevision)
		ref := content.Ref{Kind: content.ConfigMap, Name: content.ManifestName("agent", id)}
		w.inPlaceOf(ref, falseList(w.objects[ref]), true, map[string]string{content.Label: content.IsManifest})
		if restart {
			w.start(true)
		}
		w.pass(time.Minute)
		if got := w.loses("n3"); got != "" {
			t.Errorf("restarted %t: a pod is made that reads %s", restart, got)
		}
		w.drop(ref)
		w.pass(2 * time.Minute)
		w.wantPhase(complete, "5 of 5")
		w.wantRuns(map[string]int{"good": 5})
		if m := w.objects[ref].(*corev1.ConfigMap); len(m.OwnerReferences) == 0 || strings.Contains(m.Data["content"], "other") {
			t.Errorf("restarted %t: the list says %v", restart, m.Data)
		}
	}
}

// A job makes several objects one after the other, and somebody deletes the first before the last is made.
func TestWhatIsGoneBeforeItsJobEndsIsMadeAgain(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(10 * time.Minute)
	w.write("new")
	w.tick(10 * time.Second)
	jobs := w.book.Jobs()
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	r := w.carryOut(jobs[0])
	first := r.Made[len(r.Made)-1]
	ref := read(first).Ref
	delete(w.objects, ref)
	w.book.Tell(Object{Object: first})
	w.book.Tell(Object{Object: first, Gone: true})
	w.book.Tell(r)
	w.settle()
	w.pass(2 * time.Minute)
	w.wantPhase(complete, "5 of 5")
	if w.objects[ref] == nil {
		t.Errorf("%s is not made again", ref)
	}
}

// Copies stay while a pod's content has no list; people are told, and when the pod is gone they go.
func TestCopiesStayWhileNobodyKnowsWhatAPodNeeds(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(10 * time.Minute)
	p := w.pods["n3"]
	p.Revision, p.Terminating = content.Revision("t1", strings.Repeat("x", 24)), true // its node does not answer
	w.book.Step(p)
	w.pass(time.Minute)
	if got := w.book.Left("ds"); got != "" {
		t.Errorf("after a minute it is told that %s", got)
	}
	w.pass(5 * time.Minute)
	if got := w.book.Left("ds"); !strings.Contains(got, strings.Repeat("x", 24)) {
		t.Errorf("it is told that %q", got)
	}
	w.book.Step(podGone(w, "n3"))
	w.pass(5 * time.Minute)
	if got := w.book.Left("ds"); got != "" {
		t.Errorf("at the end it is told that %s", got)
	}
}
