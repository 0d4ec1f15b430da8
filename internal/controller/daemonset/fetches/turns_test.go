package fetches

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/change/fetch"
)

// Where one node is asked at a time a name that somebody else has keeps the others waiting no longer.
func TestANameThatSomebodyElseHasTakesUpNoPlace(t *testing.T) {
	w := start(t, 3)
	w.atOnce, w.taken = 1, map[types.UID]bool{"d0": true}
	w.ask("b", "d0", "d1", "d2")
	held := fetch.Report{Revision: "b", At: noon, Why: "there is another pod of the name"}
	w.check("d1", map[types.UID]fetch.Report{"d0": held, "d2": {Revision: "b", At: noon, Queued: true}})
	w.says("d1", has)
	w.check("d2", map[types.UID]fetch.Report{"d0": held, "d2": {Revision: "b", At: noon}})
}

// Nor is a pod made for ever that is never there: where somebody else has its name, or nobody sees it.
func TestAPodThatNeverComesIsMadeUntilTheDeadline(t *testing.T) {
	for name, never := range map[string]func(*world){
		"its name is taken": func(w *world) { w.taken = map[types.UID]bool{"d0": true} },
		"nobody sees it":    func(w *world) { w.late = true },
	} {
		w := start(t, 1)
		never(w)
		w.ask("b", "d0")
		for w.now.Before(noon.Add(time.Hour)) {
			w.sleep(time.Second)
		}
		if tries := w.tries["d0"]; tries < 5 || tries > 6 {
			t.Errorf("%s: it was tried %d times", name, tries)
		}
	}
}
