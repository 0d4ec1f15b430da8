package contents

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
)

const complete, rolledBack, paused = v1alpha1.PhaseComplete, v1alpha1.PhaseRolledBack, v1alpha1.PhasePaused

func TestNewDaemonSetReadsCopies(t *testing.T) {
	w := newWorld(t, careful)
	w.wantPhase(complete, "5 of 5")
	w.wantRuns(map[string]int{"good": 5})
	if r := w.status().StableRevision; content.TemplateOf(r) != "t1" || content.IDOf(r) == "" {
		t.Errorf("the stable revision is %q, want that of template t1 with a content", r)
	}
	if w.copies() != 3 {
		t.Errorf("there are %d copies, want one of each object, and the list of both", w.copies())
	}
	for ref, o := range w.objects {
		switch o := o.(type) {
		case *corev1.ConfigMap:
			if is := o.Labels[content.Label]; is != "" && (o.Immutable == nil || !*o.Immutable || len(o.Labels) != 1 || len(o.OwnerReferences) != 1) {
				t.Errorf("%s is not immutable, has labels %v, or owners %v", ref, o.Labels, o.OwnerReferences)
			}
		case *corev1.Secret:
			if is := o.Labels[content.Label]; is != "" && (o.Immutable == nil || !*o.Immutable || len(o.Labels) != 1) {
				t.Errorf("%s is not immutable, or has labels %v", ref, o.Labels)
			}
		}
	}
}

func TestBadKeyStopsAtTheCanaryAndGoesBack(t *testing.T) {
	w := newWorld(t, careful)
	stable, before := w.status().StableRevision, w.restarts
	w.write("bad")
	w.pass(4 * time.Second)
	w.wantRuns(map[string]int{"good": 5})
	w.pass(10 * time.Minute)
	w.wantPhase(rolledBack, "failed on 1 of 1 node")
	w.wantRuns(map[string]int{"good": 5})
	if touched := w.restarts - before; touched != 2 {
		t.Errorf("%d pods were made, want one on the canary, and one more on its way back", touched)
	}
	s := w.status()
	if s.StableRevision != stable || s.Content == nil && w.stored.Content == nil {
		t.Errorf("stable was %s and is %s", stable, s.StableRevision)
	}
	if got := fmt.Sprint(w.stored.Content.Changes); got != "[ConfigMap conf: agent.conf]" {
		t.Errorf("the rollout names %s", got)
	}
	if author := w.objects[content.Ref{Kind: content.ConfigMap, Name: "conf"}].(*corev1.ConfigMap); author.Data["agent.conf"] != "bad" {
		t.Errorf("the author's ConfigMap says %q", author.Data["agent.conf"])
	}
	w.write("mended")
	w.pass(time.Minute)
	w.wantPhase(complete, "5 of 5")
	w.wantRuns(map[string]int{"mended": 5})
	w.pass(10 * time.Minute)
	if w.copies() != 3 {
		t.Errorf("there are %d copies, want those of one content", w.copies())
	}
	// What failed is known: the same bad value does not go out again.
	before = w.restarts
	w.write("bad")
	w.pass(10 * time.Minute)
	w.wantPhase(rolledBack, "failed")
	if w.restarts != before {
		t.Errorf("%d pods were made for a content that has failed", w.restarts-before)
	}
}

func TestRevertedEditIsNoChange(t *testing.T) {
	w := newWorld(t, careful)
	before, made := w.restarts, w.made
	w.write("other")
	w.pass(2 * time.Second)
	w.write("good")
	w.pass(time.Hour)
	w.wantPhase(complete, "5 of 5")
	if w.restarts != before || w.made != made {
		t.Errorf("%d pods and %d copies were made", w.restarts-before, w.made-made)
	}
}

func TestEditsThatFollowEachOtherAreOneChange(t *testing.T) {
	w := newWorld(t, careful)
	before := w.restarts
	for i := range 20 {
		w.write(fmt.Sprint("v", i))
		w.pass(4 * time.Second)
	}
	if w.restarts != before {
		t.Errorf("%d pods were made before the edits ended", w.restarts-before)
	}
	w.pass(time.Minute)
	w.wantRuns(map[string]int{"v19": 5})
	if w.restarts != before+5 {
		t.Errorf("%d pods were made, want one on each node", w.restarts-before)
	}
}

func TestContentIsEditedWhileItRollsOut(t *testing.T) {
	w := newWorld(t, strings.Replace(careful, "count: 1}", "count: 1, soak: 10m}", 1))
	w.pass(20 * time.Minute)
	w.write("second")
	w.pass(time.Minute)
	w.wantRuns(map[string]int{"good": 4, "second": 1})
	w.write("third")
	w.edit()
	w.pass(time.Minute)
	w.wantRuns(map[string]int{"good": 4, "third": 1})
	w.pass(time.Hour)
	w.wantPhase(complete, "5 of 5")
	w.wantRuns(map[string]int{"third": 5})
	w.pass(10 * time.Minute)
	if w.copies() != 3 {
		t.Errorf("there are %d copies, want those of one content", w.copies())
	}
}

func TestObjectsThatComeAndGoAreChanges(t *testing.T) {
	w := newWorld(t, careful)
	w.drop(content.Ref{Kind: content.ConfigMap, Name: "conf"})
	w.wantRuns(map[string]int{"good": 5})
	w.pass(time.Minute)
	w.wantRuns(map[string]int{"none": 5})
	w.write("back")
	w.pass(time.Minute)
	w.wantRuns(map[string]int{"back": 5})
	w.drop(content.Ref{Kind: content.Secret, Name: "token"})
	before := w.restarts
	w.pass(time.Minute)
	if w.restarts != before+5 {
		t.Errorf("%d pods were made when the Secret went, want 5", w.restarts-before)
	}
}

func TestWhatIsExcludedIsNoContent(t *testing.T) {
	w := newWorld(t, careful)
	w.set.Spec.Template.Spec.Volumes[0].ConfigMap.Name = "ca"
	w.edit()
	w.pass(time.Minute)
	w.wantPhase(complete, "5 of 5")
	before := w.restarts
	w.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ca"}, Data: map[string]string{"ca": "1"}})
	w.pass(time.Minute)
	if w.restarts != before {
		t.Errorf("%d pods were made for an object that is no content", w.restarts-before)
	}
	members, known := w.book.Members(w.set.UID, content.IDOf(w.status().StableRevision))
	if !known || len(members) != 1 || members[0].Name != "token" {
		t.Errorf("the content is %v, want the Secret alone", members)
	}
}

func TestDeletedCopyIsMadeAgain(t *testing.T) {
	w := newWorld(t, careful)
	revision := w.status().StableRevision
	ref, before := w.copyOf(revision), w.restarts
	w.drop(ref)
	if w.objects[ref] == nil {
		t.Error("the copy is gone")
	}
	// Also one that the author's object does not hold any more.
	w.write("bad")
	w.pass(time.Minute)
	w.drop(ref)
	if w.objects[ref] == nil {
		t.Error("the copy of the stable revision is gone")
	}
	w.drop(content.Ref{Kind: content.ConfigMap, Name: content.ManifestName("agent", content.IDOf(revision))})
	w.wantRuns(map[string]int{"good": 5})
	w.wantPhase(rolledBack, "failed")
	w.drop(content.KeyRef)
	if w.objects[content.KeyRef] == nil {
		t.Error("the key is gone")
	}
	if w.restarts != before+2 {
		t.Errorf("%d pods were made, want two on the canary", w.restarts-before)
	}
}

// Nobody knew the copy when it went, and the author's object holds something else.
func TestLostContentStopsEverything(t *testing.T) {
	w := newWorld(t, careful)
	ref, before := w.copyOf(w.status().StableRevision), w.restarts
	delete(w.objects, ref)
	w.refuse = func(*Job) string { return "" } // pods refer to what is gone
	w.objects[content.Ref{Kind: content.ConfigMap, Name: "conf"}].(*corev1.ConfigMap).Data["agent.conf"] = "new"
	w.start(true)
	w.pass(time.Minute)
	w.wantMessage(ref.Name + " is gone")
	w.wantPhase(paused, ref.Name+" is gone")
	if w.restarts != before {
		t.Errorf("%d pods were made", w.restarts-before)
	}
}

// Somebody who may write ConfigMaps replaces a copy.
func TestSpoiledCopyIsNotUsed(t *testing.T) {
	w := newWorld(t, careful)
	ref, before := w.copyOf(w.status().StableRevision), w.restarts
	spoiled := w.objects[ref].(*corev1.ConfigMap).DeepCopy()
	spoiled.Data["agent.conf"] = "evil"
	w.put(spoiled)
	w.settle()
	w.pass(time.Second)
	w.wantMessage(ref.Name + " was changed after it was made")
	w.write("new")
	w.pass(time.Minute)
	w.wantPhase(paused, ref.Name+" was changed after it was made")
	if w.restarts != before {
		t.Errorf("%d pods were made", w.restarts-before)
	}
}

func TestWhatCannotBeReadOrMadeStopsAndSaysWhy(t *testing.T) {
	w := newWorld(t, careful)
	before := w.restarts
	w.refuse = func(*Job) string { return `copy conf-x cannot be made: exceeded quota: few` }
	w.write("new")
	w.pass(time.Minute)
	w.wantPhase(paused, "exceeded quota: few")
	if w.refusals < 2 || w.refusals > 10 {
		t.Errorf("the copy was tried %d times in a minute", w.refusals)
	}
	w.refuse = nil
	w.pass(2 * time.Minute)
	w.wantPhase(complete, "5 of 5")
	w.wantRuns(map[string]int{"new": 5})
	before = w.restarts
	w.book.Tell(Sight{Namespace: "ns", Kind: content.Secret, Why: "secrets is forbidden"})
	w.write("newer")
	w.pass(time.Minute)
	w.wantMessage("secrets is forbidden")
	// A node that loses its pod gets what is stable.
	w.book.Step(podGone(w, "n3"))
	w.settle()
	w.wantRuns(map[string]int{"new": 5})
	if w.restarts != before+1 {
		t.Errorf("%d pods were made, want that of the node without one", w.restarts-before)
	}
	w.read()
	w.pass(time.Minute)
	w.wantRuns(map[string]int{"newer": 5})
}

func TestMoreObjectsThanTheLimitAreNotFollowed(t *testing.T) {
	w := newWorld(t, careful)
	before := w.restarts
	for i := range content.MaxObjects {
		w.set.Spec.Template.Spec.Containers = append(w.set.Spec.Template.Spec.Containers, corev1.Container{EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("m", i)}}}}})
	}
	w.edit()
	w.pass(time.Minute)
	w.wantPhase(paused, "names 22 ConfigMaps and Secrets; at most 20 can be content")
	if w.restarts != before {
		t.Errorf("%d pods were made", w.restarts-before)
	}
}

// A controller that starts again, in the middle of anything, goes on from what the API holds.
func TestRestartGoesOn(t *testing.T) {
	w := newWorld(t, strings.Replace(careful, "count: 1}", "count: 1, soak: 10m}", 1))
	w.pass(20 * time.Minute)
	w.write("second")
	w.pass(time.Minute)
	before, made := w.restarts, w.made
	w.start(true)
	w.pass(time.Second)
	w.wantRuns(map[string]int{"good": 4, "second": 1})
	if w.restarts != before || w.made != made {
		t.Errorf("%d pods and %d copies were made", w.restarts-before, w.made-made)
	}
	// Before it has read the namespace it does nothing.
	w.start(false)
	w.pass(time.Hour)
	if w.restarts != before || w.made != made {
		t.Errorf("%d pods and %d copies were made before anything was read", w.restarts-before, w.made-made)
	}
	w.read()
	w.pass(time.Hour)
	w.wantRuns(map[string]int{"second": 5})
}

func TestContentComesInWavesAndGoesWithoutARestart(t *testing.T) {
	w := newWorld(t, plain)
	w.wantRuns(map[string]int{"good": 5})
	if w.copies() != 0 || w.status().StableRevision != "t1" || w.stored.Content != nil {
		t.Errorf("without content there are %d copies, and revision %s", w.copies(), w.status().StableRevision)
	}
	w.policy = w.compile(strings.Replace(careful, "count: 1}", "count: 1, soak: 10m}", 1))
	w.tellPolicy()
	w.read()
	w.settle()
	w.pass(time.Minute)
	if n := marked(w); n != 1 {
		t.Errorf("%d pods refer to copies, want the canary's", n)
	}
	w.pass(time.Hour)
	if n := marked(w); n != 5 {
		t.Errorf("%d pods refer to copies, want all", n)
	}
	before := w.restarts
	w.policy = w.compile(plain)
	w.tellPolicy()
	w.pass(time.Hour)
	if w.restarts != before || w.copies() != 3 {
		t.Errorf("when content is off %d pods were made, and there are %d copies; want none, and 3", w.restarts-before, w.copies())
	}
	w.policy = nil
	w.tellPolicy()
	w.pass(time.Hour)
	if w.restarts != before || w.copies() != 3 {
		t.Errorf("without a policy %d pods were made, and there are %d copies; want none, and 3", w.restarts-before, w.copies())
	}
	for i := range 5 {
		w.book.Step(podGone(w, fmt.Sprint("n", i)))
		w.settle()
	}
	w.pass(10 * time.Minute)
	if n := marked(w); n != 0 || w.copies() != 0 || len(w.pods) != 5 {
		t.Errorf("%d of %d new pods refer to copies, of which there are %d; want none", n, len(w.pods), w.copies())
	}
}

// A Secret's value is in nothing that is told.
func TestNoValueIsTold(t *testing.T) {
	w := newWorld(t, careful)
	w.put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "token"}, Data: map[string][]byte{"token": []byte("hunter3")}})
	w.pass(time.Minute)
	said := fmt.Sprint(w.events, w.status(), w.stored)
	for ref, o := range w.objects {
		said += ref.String()
		if m, is := o.(*corev1.ConfigMap); is {
			said += fmt.Sprint(m)
		}
	}
	if !strings.Contains(said, "Secret token: token") {
		t.Errorf("nothing names the key: %s", said)
	}
	for _, value := range []string{"hunter2", "hunter3", "aHVudGVy"} {
		if strings.Contains(said, value) {
			t.Errorf("%q was told: %s", value, said)
		}
	}
}

// Content that changes faster than it can travel is counted, also by the next controller, until some is everywhere.
func TestContentThatIsOvertakenIsCounted(t *testing.T) {
	w := newWorld(t, strings.Replace(careful, "count: 1}", "count: 1, soak: 10m}", 1))
	w.pass(20 * time.Minute)
	wants := func(overtaken int32, since time.Time) {
		t.Helper()
		c := w.stored.Content
		if c.Overtaken != overtaken || (c.OvertakenSince == nil) != since.IsZero() {
			t.Errorf("after %q it is overtaken %d times since %v; want %d since %v", w.stored.Message, c.Overtaken,
				c.OvertakenSince, overtaken, since)
		} else if c.OvertakenSince != nil && c.OvertakenSince.Sub(since).Abs() > 30*time.Second {
			t.Errorf("it is overtaken since %v, want %v", c.OvertakenSince, since)
		}
		// That is what rollout status, why and the dashboard show.
		lines := strings.Join(c.Lines(), "\n")
		if told := strings.Contains(lines, fmt.Sprintf("travel: %d times since ", overtaken)); told != (overtaken >= v1alpha1.OvertakenOften) {
			t.Errorf("overtaken %d times people are told:\n%s", overtaken, lines)
		}
	}
	w.write("first")
	w.pass(time.Minute)
	wants(0, time.Time{})
	began := w.now
	for i := range int32(3) {
		w.write(fmt.Sprint("another ", i))
		w.pass(time.Minute)
		wants(i+1, began)
	}
	w.start(true)
	w.pass(time.Minute)
	wants(3, began)
	w.write("the last")
	w.start(true) // while no controller runs
	w.pass(time.Minute)
	wants(4, began)
	w.pass(time.Hour)
	w.wantPhase(complete, "5 of 5")
	wants(0, time.Time{})
}
