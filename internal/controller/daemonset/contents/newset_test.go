package contents

import (
	"testing"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
)

// newSet is a DaemonSet that is just made. What its policy makes part of its revisions cannot be read yet.
func newSet(t *testing.T) *world {
	w := newWorld(t, careful)
	for ref, o := range w.objects {
		if o.GetLabels()[content.Label] != "" {
			delete(w.objects, ref)
		}
	}
	clear(w.pods)
	w.stored, w.made = nil, 0
	w.assigned = func(a *action.CreatePod) {
		if content.IDOf(a.Revision) == "" {
			t.Errorf("%s gets %s, which is without the content", a.Node, a.Revision)
		}
	}
	w.start(false)
	return w
}

// A right that comes a moment late must not have the whole fleet read the author's objects: all of it would be one
// change later, or none until somebody approves it.
func TestANewDaemonSetWaitsForItsContentAfterAFailedReading(t *testing.T) {
	w := newSet(t)
	for _, kind := range []content.Kind{content.ConfigMap, content.Secret} {
		w.book.Tell(Sight{Namespace: "ns", Kind: kind, Why: "forbidden"})
		w.settle()
	}
	w.wantRuns(map[string]int{})
	w.read()
	w.settle()
	w.wantRuns(map[string]int{"good": 5})
	w.wantPhase("Complete", "")
}
