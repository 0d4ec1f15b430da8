package contents

import (
	"testing"
	"time"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// While copies that nobody needed are being deleted, no pod is made that reads them, though they are content again:
// they are made once more first.
func TestCopiesThatAreBeingDeletedAreNotReliedOn(t *testing.T) {
	w := newWorld(t, careful)
	w.pass(10 * time.Minute)
	w.write("better")
	w.pass(time.Minute)
	w.write("good")
	w.pass(time.Minute)
	var under *Job
	for range 100 {
		if under != nil {
			break
		}
		w.tick(5 * time.Second)
		jobs, actions := w.work()
		for _, a := range actions {
			w.act(a)
		}
		for _, j := range jobs {
			if len(j.Delete) > 0 {
				under = j
				continue
			}
			w.book.Tell(w.carryOut(j))
		}
	}
	if under == nil {
		t.Fatal("the copies of what nobody needs stay")
	}
	w.assigned = func(a *action.CreatePod) {
		if _, is := w.objects[w.copyOf(a.Revision)]; !is {
			t.Errorf("pod of revision %s is made, and its copy is gone", a.Revision)
		}
	}
	made := w.made
	w.write("better")
	for range 3 {
		w.tick(10 * time.Second)
		w.settle()
	}
	if runs := w.runs(); runs["better"] > 0 {
		t.Errorf("while the copies are being deleted the nodes have %v", runs)
	}
	w.book.Tell(w.carryOut(under))
	w.pass(10 * time.Minute)
	w.wantRuns(map[string]int{"better": 5})
	if w.made == made {
		t.Error("nothing was made again")
	}
}
