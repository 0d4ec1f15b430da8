package contents

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

const noRoom = "copy x cannot be made: exceeded quota"

func refuseAll(*Job) string { return noRoom }

func refuseKey(j *Job) string {
	if j.Key != nil {
		return "Secret everynode-content-key cannot be made: exceeded quota"
	}
	return ""
}

// A quota has no room for the copies of an edit. Who takes the edit back has mended it: the next template goes out.
func TestAnEditThatHasNoRoomIsTakenBack(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(10 * time.Minute)
	w.refuse = refuseAll
	w.write("a")
	w.pass(time.Minute)
	w.wantPhase(paused, "exceeded quota")
	w.write("good")
	w.pass(10 * time.Minute)
	w.wantPhase(complete, "5 of 5")
	w.edit()
	w.pass(10 * time.Minute)
	w.wantPhase(complete, "5 of 5")
}

// The key for the names of copies cannot be made. That is said; a new DaemonSet gets no pod, and one that there was is
// looked after.
func TestAKeyThatCannotBeMade(t *testing.T) {
	w := newWorldWith(t, careful, refuseKey)
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{})
	w.wantPhase(paused, "exceeded quota")
	w.refuse = nil
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{"good": 5})
	if marked(w) != 5 {
		t.Errorf("%d pods read copies", marked(w))
	}

	w = newWorld(t, plain)
	w.pass(10 * time.Minute)
	w.refuse = refuseKey
	w.policy = w.compile(careful)
	w.tellPolicy()
	w.edit()
	w.book.Step(podGone(w, "n2"))
	w.pass(time.Minute)
	w.wantRuns(map[string]int{"good": 5})
	w.wantPhase(paused, "exceeded quota")
	if content.TemplateOf(w.pods["n2"].Revision) != "t1" {
		t.Errorf("the pod that was lost is made by %s", w.pods["n2"].Revision)
	}
	w.refuse = nil
	w.pass(10 * time.Minute)
	w.wantPhase(complete, "5 of 5")
}

// There is no room for the copies of an edit, and pods are lost: none is made by what was never copied, also when a
// controller starts, and when another edit settles.
func TestNothingIsGivenThatWasNeverMade(t *testing.T) {
	soaking := strings.Replace(careful, "count: 1", "count: 1, soak: 1h", 1)
	for _, policy := range []string{careful, soaking} {
		for _, how := range []string{"restart", "another edit", "nothing else"} {
			w := newWorld(t, policy)
			w.pass(10 * time.Minute)
			w.assigned = func(a *action.CreatePod) {
				members, _ := w.book.Members(w.set.UID, content.IDOf(a.Revision))
				for _, m := range members {
					if w.objects[m.CopyRef()] == nil {
						t.Errorf("%s: a pod of %s is made on %s, and there is no %s", how, a.Revision, a.Node, m.Copy)
					}
				}
				if len(members) == 0 {
					t.Errorf("%s: a pod of %s is made on %s", how, a.Revision, a.Node)
				}
			}
			w.refuse = refuseAll
			w.write("a")
			w.pass(time.Minute)
			for _, lost := range []string{"n0", "n1", "n2", "n3", "n4"} {
				if how == "another edit" {
					w.write("b" + lost)
					w.tick(time.Second)
					w.settle()
				}
				w.book.Step(podGone(w, lost))
				if how == "restart" {
					w.start(true)
				}
				w.settle()
				if how == "another edit" {
					w.wantRuns(map[string]int{"good": 5})
				}
				w.pass(time.Minute)
			}
			w.wantRuns(map[string]int{"good": 5})
			w.wantPhase(paused, "exceeded quota")
		}
	}
}

// A copy goes while no controller runs, and its object has changed since; or somebody puts something else in its place,
// or in that of the list. No pod is made of it.
func TestNobodyReadsWhatIsInPlaceOfACopy(t *testing.T) {
	for _, what := range []string{"gone", "replaced", "replaced while nobody looks"} {
		w := newWorld(t, careful)
		w.pass(10 * time.Minute)
		ref := w.copyOf(w.status().StableRevision)
		evil := w.objects[ref].(*corev1.ConfigMap).DeepCopy()
		evil.Data["agent.conf"] = "evil"
		switch what {
		case "gone":
			delete(w.objects, ref)
			w.objects[confRef] = &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "conf", UID: "x", ResourceVersion: "999"},
				Data:       map[string]string{"agent.conf": "other"},
			}
			w.refuse = func(*Job) string { return "" }
		default:
			w.put(evil)
		}
		if what != "replaced" {
			w.start(true)
		}
		w.pass(time.Minute)
		w.book.Step(podGone(w, "n3"))
		w.pass(time.Minute)
		if p, made := w.pods["n3"]; made {
			t.Errorf("%s: a pod of %s is made, which reads %s", what, p.Revision, w.reads(p.Revision))
		}
	}
}

// Content is turned off while an edit settles. Then a copy goes of which nobody knows any more that it was one.
func TestACopyThatGoesUnseenWhileContentIsOff(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(10 * time.Minute)
	ref := w.copyOf(w.status().StableRevision)
	w.write("a")
	w.policy = w.compile(plain)
	w.tellPolicy()
	w.pass(time.Minute)
	bare := w.objects[ref].(*corev1.ConfigMap).DeepCopy()
	bare.Labels = nil
	w.put(bare)
	w.refuse = func(*Job) string { return "" }
	w.drop(ref)
	w.pass(time.Minute)
	w.wantPhase(complete, "5 of 5")
}

// While no policy can be read the target keeps its digest, by which people approve and abort it.
func TestTheDigestStaysWhileNoPolicyCanBeRead(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(10 * time.Minute)
	before := w.stored.TargetDigest
	w.blind = true
	w.start(true)
	for range 3 {
		w.pass(time.Minute)
		w.tellSet()
		w.settle()
		if got := w.stored.TargetDigest; got != before {
			t.Fatalf("the digest is %q, want %q", got, before)
		}
	}
}

// Content is turned on, and a controller starts before the first copies are there: who lost its pod gets the one that
// it had, and does not wait for them.
func TestAStartWhileTheFirstContentSettles(t *testing.T) {
	w := newWorld(t, plain)
	w.pass(10 * time.Minute)
	w.policy = w.compile(careful)
	w.tellPolicy()
	w.settle()
	w.book.Step(podGone(w, "n3"))
	w.start(true)
	w.tick(time.Second)
	w.settle()
	w.wantRuns(map[string]int{"good": 5})
	w.pass(time.Minute)
	w.wantPhase(complete, "5 of 5")
}

// No pod is made before the copies that it reads are there: not of a new DaemonSet whose list is made alone, and not in
// place of a lost one while somebody has deleted a copy that cannot be made again.
func TestNoPodIsMadeBeforeItsCopies(t *testing.T) {
	full := true
	quota := func(j *Job) string {
		if !full || len(j.Make) == 0 {
			return ""
		}
		return noRoom
	}
	w := newWorldWith(t, careful, quota)
	w.pass(5 * time.Minute)
	if len(w.pods) > 0 {
		t.Errorf("%d pods are made, and none of the copies that they read", len(w.pods))
	}
	full = false
	w.pass(5 * time.Minute)
	w.wantRuns(map[string]int{"good": 5})

	w = newWorld(t, careful)
	w.pass(10 * time.Minute)
	ref := w.copyOf(w.status().StableRevision)
	w.refuse, full = quota, true
	w.drop(ref)
	w.book.Step(podGone(w, "n3"))
	w.pass(5 * time.Minute)
	if p, made := w.pods["n3"]; made {
		t.Errorf("a pod of %s is made, and %s is gone", p.Revision, ref)
	}
	full = false
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{"good": 5})
}
