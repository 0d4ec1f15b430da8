package contents

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
)

// cannotDelete is what the API says of all copies and lists.
func cannotDelete(metav1.Object) string { return `copy x cannot be deleted: no deletions here` }

// wantLeft: people are told why copies stay, and once in an event.
func (w *world) wantLeft(words string) {
	w.Helper()
	told := 0
	for _, e := range w.events {
		if words != "" && strings.Contains(e, words) {
			told++
		}
	}
	left := w.book.Left(w.set.UID)
	if words == "" && left != "" || !strings.Contains(left, words) || words != "" && told != 1 {
		w.Errorf("it is said that copies stay since %q, in %d events; want %q in one", left, told, words)
	}
	if w.stored == nil || w.policy == nil {
		return
	}
	said := ""
	if w.stored.Content != nil {
		said = w.stored.Content.Leftover
	}
	lines := strings.Join(w.stored.Content.Lines(), "\n")
	if said != left || !strings.Contains(lines, words) || left != "" && strings.Contains(lines, "they go") {
		w.Errorf("the status says %q, want %q; people read\n%s", said, left, lines)
	}
}

// Copies that nobody needs cannot be deleted: that is said, and no change waits for it.
func TestCopiesThatCannotBeDeletedHinderNoChange(t *testing.T) {
	w := newWorld(t, careful)
	w.keeps = cannotDelete
	for _, value := range []string{"second", "third", "fourth"} {
		w.write(value)
		w.pass(time.Minute)
		w.wantPhase(complete, "5 of 5")
		w.wantRuns(map[string]int{value: 5})
		w.pass(10 * time.Minute)
		w.wantPhase(complete, "5 of 5")
		w.wantLeft("no deletions here")
	}
	w.keeps = nil
	w.pass(5 * time.Minute)
	w.wantLeft("")
	if w.copies() != 3 {
		t.Errorf("there are %d copies, want those of one content", w.copies())
	}
}

// Copies do not wait to be deleted until others can be made: a quota may have no room because of them.
func TestCopiesGoThoughOthersCannotBeMade(t *testing.T) {
	w := newWorld(t, careful)
	w.write("second")
	w.pass(time.Minute)
	w.wantRuns(map[string]int{"second": 5})
	w.refuse = refuseAll
	w.write("third")
	w.pass(10 * time.Minute)
	w.wantPhase(paused, "exceeded quota")
	if w.copies() != 3 {
		t.Errorf("there are %d copies, want those of one content", w.copies())
	}
}

// Content is turned off, and the right on it is taken away. What cannot be found or deleted then is told, also by the
// next controller. That ends when the right comes back, or when somebody has deleted the copies.
func TestCopiesThatStaySayWhy(t *testing.T) {
	refuse := func(kind content.Kind) func(w *world) {
		return func(w *world) {
			w.keeps = func(o metav1.Object) string {
				if read(o).Kind == kind {
					return "it is forbidden to delete " + o.GetName()
				}
				return ""
			}
			w.book.Tell(Sight{Namespace: "ns", Kind: kind, Why: "no right on " + string(kind)})
			w.settle()
		}
	}
	for words, hinder := range map[string]func(w *world){
		"no deletions here":     func(w *world) { w.keeps = cannotDelete },
		"no right on ConfigMap": refuse(content.ConfigMap),
		"no right on Secret":    refuse(content.Secret),
	} {
		for _, policy := range []string{plain, ""} {
			for _, end := range []string{"the right comes back", "they are deleted", "they are deleted after a start"} {
				t.Run(words+" "+policy+" "+end, func(t *testing.T) {
					w := newWorld(t, careful)
					w.pass(time.Minute)
					w.policy = nil
					if policy != "" {
						w.policy = w.compile(policy)
					}
					w.tellPolicy()
					hinder(w)
					w.edit()
					w.pass(10 * time.Minute)
					if marked(w) > 0 || w.copies() == 0 || w.stored == nil {
						t.Fatalf("%d pods refer to copies, of which there are %d; the rollout is %+v", marked(w),
							w.copies(), w.stored)
					}
					w.wantLeft(words)
					if strings.HasSuffix(end, "start") {
						w.events = nil
						w.start(words == "no deletions here")
						if words == "no right on Secret" {
							w.readKind(content.ConfigMap)
							w.settle()
						}
						hinder(w)
						w.pass(10 * time.Minute)
						w.wantLeft(words)
					}
					if end == "the right comes back" {
						w.keeps = nil
						w.read()
					} else {
						w.deleteByHand(words)
					}
					w.pass(10 * time.Minute)
					w.wantLeft("")
					reading, st := w.reading[content.ConfigMap], w.stored
					if w.copies() > 0 || reading || st != nil && (policy == "" || st.Content != nil) {
						t.Errorf("there are %d copies, the rollout is %+v; it is read: %t", w.copies(), st, reading)
					}
				})
			}
		}
	}
}

// deleteByHand has somebody delete all copies and lists. What cannot be read is not seen: who sees no list is told by
// the end of the rollout.
func (w *world) deleteByHand(words string) {
	for _, ref := range sorted(w.objects) {
		is := w.objects[ref].GetLabels()[content.Label]
		switch {
		case is != content.IsCopy && is != content.IsManifest:
		case strings.HasSuffix(words, " "+string(ref.Kind)), strings.HasSuffix(words, string(content.ConfigMap)):
			delete(w.objects, ref)
		default:
			w.drop(ref)
		}
	}
	if strings.HasSuffix(words, string(content.ConfigMap)) {
		w.stored = nil
		w.tellStored()
	}
	w.settle()
}
