package contents

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

var confRef = content.Ref{Kind: content.ConfigMap, Name: "conf"}

// A Secret that is written every few seconds never settles; another template must go out all the same.
func TestObjectWrittenAgainAndAgainHoldsNothingUp(t *testing.T) {
	w := newWorld(t, careful)
	for i := range 100 {
		if i == 10 {
			w.edit()
		}
		w.write(fmt.Sprint("v", i))
		w.pass(3 * time.Second)
	}
	for node, p := range w.pods {
		if content.TemplateOf(p.Revision) != "t2" {
			t.Errorf("after five minutes the pod on %s has revision %s", node, p.Revision)
		}
	}
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{"v99": 5})
}

// Somebody replaces an immutable object by an equal one: delete and create.
func TestObjectMadeAnewWithTheSameDataIsNoChange(t *testing.T) {
	w := newWorld(t, careful)
	before := w.restarts
	w.drop(confRef)
	w.pass(2 * time.Second)
	w.write("good")
	w.pass(time.Hour)
	if w.restarts != before || w.copies() != 3 {
		t.Errorf("%d pods were made, and there are %d copies; want none, and 3", w.restarts-before, w.copies())
	}
}

// The new object is there before the template names it, or after, within the time to settle.
func TestRenamedObjectIsOneChange(t *testing.T) {
	w := newWorld(t, careful)
	before := w.restarts
	w.set = w.set.DeepCopy()
	w.set.Spec.Template.Spec.Volumes[0].ConfigMap.Name = "conf-2"
	w.edit()
	w.pass(2 * time.Second)
	w.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "conf-2"}, Data: map[string]string{"agent.conf": "good"}})
	w.drop(confRef)
	w.pass(time.Minute)
	w.wantPhase(complete, "5 of 5")
	if w.restarts != before+5 {
		t.Errorf("%d pods were made, want one on each node", w.restarts-before)
	}
	for node, p := range w.pods {
		members, _ := w.book.Members(w.set.UID, content.IDOf(p.Revision))
		if len(members) != 2 || members[0].Name != "conf-2" || members[0].Absent {
			t.Errorf("the pod on %s has content %+v", node, members)
		}
	}
}

// An empty copy stands for an object that is not there. What somebody puts in its place is read by nobody new.
func TestObjectInPlaceOfOneThatIsMissingStopsWhatIsNew(t *testing.T) {
	for name, put := range map[string]struct {
		data    map[string]string
		mutable bool
		says    string
	}{
		"it holds something": {map[string]string{"agent.conf": "evil"}, false, "was changed after it was made"},
		"it can be changed":  {nil, true, "is not immutable any more"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, careful)
			w.drop(confRef)
			w.pass(time.Minute)
			stable := w.status().StableRevision
			ref, before := w.copyOf(stable), w.restarts
			if m, is := w.objects[ref].(*corev1.ConfigMap); !is || len(m.Data) > 0 || !*m.Immutable {
				t.Fatalf("%v stands for what is missing, want an immutable copy that is empty", w.objects[ref])
			}
			another := w.objects[ref].(*corev1.ConfigMap).DeepCopy()
			another.Data, another.Immutable = put.data, new(!put.mutable)
			w.put(another)
			w.settle()
			w.pass(time.Second)
			w.wantMessage(ref.Name + " " + put.says)
			w.edit()
			w.pass(time.Minute)
			if w.restarts != before {
				t.Errorf("%d pods were made", w.restarts-before)
			}
			w.drop(ref)
			w.pass(time.Minute)
			w.wantPhase(complete, "5 of 5")
			if m, is := w.objects[w.copyOf(w.status().StableRevision)].(*corev1.ConfigMap); !is || len(m.Data) > 0 {
				t.Errorf("%v stands for what is missing at the end", m)
			}
		})
	}
}

// Pods of a version that made no empty copies name an object that does not exist. They stay when this version starts,
// which makes the empty copy, also where somebody has made what they name.
func TestAVersionThatMakesEmptyCopiesTakesOver(t *testing.T) {
	for _, made := range []bool{false, true} {
		w := newWorld(t, careful)
		w.drop(confRef)
		w.pass(time.Minute)
		stable := w.status().StableRevision
		ref, before := w.copyOf(stable), w.restarts
		delete(w.objects, ref)
		if members, _ := w.book.Members(w.set.UID, content.IDOf(stable)); made {
			w.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: members[0].Copy}})
		}
		w.start(true)
		w.pass(time.Minute)
		w.wantPhase(complete, "5 of 5")
		if got := w.status().StableRevision; w.restarts != before || got != stable || w.objects[ref] == nil {
			t.Errorf("%d pods were made, the stable revision is %s, want %s, and its empty copy is %v",
				w.restarts-before, got, stable, w.objects[ref])
		}
	}
}

// Each copy is genuine, but the list has another one than it was made with.
func TestListOfOtherCopiesIsNotUsed(t *testing.T) {
	w := newWorld(t, careful)
	stable := w.status().StableRevision
	good := w.copyOf(stable)
	w.write("evil")
	w.pass(time.Minute)
	evil := w.objects[w.copyOf(w.status().StableRevision)].(*corev1.ConfigMap).DeepCopy()
	w.write("good")
	w.pass(time.Minute)
	if w.status().StableRevision != stable {
		t.Fatalf("the stable revision is %s, want %s again", w.status().StableRevision, stable)
	}
	list := content.Ref{Kind: content.ConfigMap, Name: content.ManifestName("agent", content.IDOf(stable))}
	forged := w.objects[list].(*corev1.ConfigMap).DeepCopy()
	for key, text := range forged.Data {
		forged.Data[key] = strings.ReplaceAll(text, good.Name, evil.Name)
	}
	w.put(forged)
	w.put(evil)
	before := w.restarts
	w.start(true)
	w.write("new")
	w.pass(time.Minute)
	w.wantMessage(list.Name + " was changed after it was made")
	if w.restarts != before {
		t.Errorf("%d pods were made", w.restarts-before)
	}
}

// A DaemonSet that is deleted without its pods, and made again, takes the copies over, and deletes what nobody needs.
func TestOrphansKeepTheirCopies(t *testing.T) {
	for name, value := range map[string]string{"same": "good", "another since": "new"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, careful)
			before := w.restarts
			w.book.Tell(DaemonSet{Object: w.set, Gone: true})
			w.book.Step(fact.RolloutGone(w.set.UID))
			w.book.Step(fact.DaemonSetGone(w.set.UID))
			for _, o := range w.objects {
				o.SetOwnerReferences(nil)
			}
			for node, p := range w.pods {
				p.Owner = "another"
				w.pods[node] = p
			}
			w.pass(10 * time.Minute)
			if w.copies() != 3 {
				t.Errorf("of the copies %d are left", w.copies())
			}
			w.set = w.set.DeepCopy()
			w.set.UID, w.stored = types.UID("another"), nil
			w.write(value)
			w.start(true)
			w.pass(10 * time.Minute)
			w.wantPhase(complete, "5 of 5")
			w.wantRuns(map[string]int{value: 5})
			if value == "good" && w.restarts != before {
				t.Errorf("%d pods were made", w.restarts-before)
			}
			if w.copies() != 3 {
				t.Errorf("there are %d copies, want those of one content", w.copies())
			}
			for ref, o := range w.objects {
				if is := o.GetLabels()[content.Label]; (is == content.IsCopy || is == content.IsManifest) && !w.book.sets[w.set.UID].owns(o) {
					t.Errorf("%s is nobody's", ref)
				}
			}
		})
	}
}

// A DaemonSet that is deleted and made again takes over the copies of the one before it, which are being deleted with
// that one, and only then has pods made that read them.
func TestCopiesAreTakenOverBeforePodsReadThem(t *testing.T) {
	w := newWorld(t, careful)
	w.book.Tell(DaemonSet{Object: w.set, Gone: true})
	w.book.Step(fact.RolloutGone(w.set.UID))
	w.book.Step(fact.DaemonSetGone(w.set.UID))
	for _, p := range w.pods {
		w.book.Step(fact.PodGone(p.UID))
	}
	clear(w.pods)
	w.set = w.set.DeepCopy()
	w.set.UID, w.stored = types.UID("another"), nil
	w.tellSet()
	pods := 0
	w.assigned = func(a *action.CreatePod) {
		pods++
		members, known := w.book.Members(w.set.UID, content.IDOf(a.Revision))
		if !known || len(members) == 0 {
			t.Fatalf("a pod of %s has no content", a.Revision)
		}
		for _, m := range members {
			if o := w.objects[m.CopyRef()]; o == nil || !w.book.sets[w.set.UID].owns(o) {
				t.Errorf("a pod reads %s %s before that is the DaemonSet's", m.Kind, m.Copy)
			}
		}
	}
	w.start(true)
	w.pass(10 * time.Minute)
	w.wantPhase(complete, "5 of 5")
	if pods != 5 {
		t.Errorf("%d pods were made, want 5", pods)
	}
}

// What is still on its way when the reading of a namespace ends is not there for ever.
func TestWhatComesAfterTheEndOfReadingIsNotTakenIn(t *testing.T) {
	w := newWorld(t, careful)
	late := w.objects[confRef]
	w.policy = w.compile(plain)
	w.tellPolicy()
	for i := range 5 {
		w.book.Step(podGone(w, fmt.Sprint("n", i)))
	}
	w.pass(10 * time.Minute)
	if w.reading[content.ConfigMap] {
		t.Fatal("the namespace is still read")
	}
	w.book.Tell(Object{Object: late})
	delete(w.objects, confRef)
	w.policy = w.compile(careful)
	w.tellPolicy()
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{"none": 5})
}

// Nothing is kept of a DaemonSet that is gone.
func TestDaemonSetThatIsGoneIsForgotten(t *testing.T) {
	w := newWorld(t, careful)
	w.write("second")
	w.pass(time.Minute)
	w.book.Tell(DaemonSet{Object: w.set, Gone: true})
	w.book.Step(fact.RolloutGone(w.set.UID))
	w.book.Step(fact.DaemonSetGone(w.set.UID))
	for node := range w.pods {
		w.book.Step(podGone(w, node))
	}
	w.follow()
	if n := len(w.book.sets) + len(w.book.counts) + len(w.book.marked) + len(w.book.spaces); n > 0 {
		t.Errorf("%+v is still known", w.book)
	}
	if jobs := w.book.Jobs(); len(jobs) > 0 {
		t.Errorf("there is something to do for it: %+v", jobs[0])
	}
}

// Whoever turns content off that cannot be read has the policy followed again.
func TestContentThatIsNotWantedHindersNothing(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(time.Minute)
	w.book.Tell(Sight{Namespace: "ns", Kind: content.ConfigMap, Why: "configmaps is forbidden"})
	w.edit()
	w.settle()
	w.wantPhase(paused, "configmaps is forbidden")
	w.policy = w.compile(plain)
	w.tellPolicy()
	w.edit()
	w.settle()
	w.wantPhase(complete, "")
}
