package variants

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// tellPod tells of a pod again, by what it is called where content is no part of revisions.
func (w *world) tellPod() {
	w.Step(fact.Pod{UID: "p", Name: "p", Owner: "ds", Node: "n", Bound: true, Revision: "t"})
}

// withContent is a fleet of one node whose pod has content.
func withContent(t *testing.T) (w *world, named string) {
	t.Helper()
	w = newWorld()
	w.setNode("n", "l", 4)
	w.setVariant("l", "l", 0, 3, 2)
	w.begin()
	info := *w.sets["ds"].info
	info.Revision = content.Revision("t", strings.Repeat("a", 24))
	w.Step(info)
	named = w.newest()
	w.make("p", "n", named)
	w.wantCalled(t, "with content", named)
	return w, named
}

func (w *world) wantCalled(t *testing.T, when, want string) {
	t.Helper()
	if info, _ := w.rows.Pod("p"); info.Revision != want {
		t.Errorf("%s the pod is called %q, want %q", when, info.Revision, want)
	}
}

func (w *world) tellTemplate() {
	info := *w.sets["ds"].info
	info.Revision = "t"
	w.Step(info)
}

// Where a policy leaves, pods are called by their template before the newest revision is. They are none of that revision
// of before, with content, and are not replaced when the newest one comes.
func TestAPodIsNotCalledByAContentThatIsAboutToGo(t *testing.T) {
	w, named := withContent(t)
	plain := content.Revision("t_"+variantsOf(named), "")
	w.tellPod()
	w.wantCalled(t, "at first", plain)
	w.tellTemplate()
	w.wantCalled(t, "with the newest revision", plain)
	if plain != w.newest() {
		t.Errorf("the newest revision is %s, not %s", w.newest(), plain)
	}
}

// A pod of the stable revision with content is called by that as long as it is stable, and as before after that.
func TestAPodIsCalledByTheStableContentWhileItIsStable(t *testing.T) {
	w, named := withContent(t)
	w.Step(fact.Rollout{UID: "ds", Status: &v1alpha1.DaemonSetRolloutStatus{StableRevision: named, TargetRevision: "t"}})
	w.setVariant("l", "l", 0, 5, 2) // by which the pod would be another
	w.settle()
	w.tellTemplate()
	w.tellPod()
	w.wantCalled(t, "while it is stable", named)
	w.setVariant("l", "l", 0, 3, 2)
	w.Step(fact.RolloutGone("ds"))
	w.settle()
	w.tellTemplate()
	w.settle()
	w.lookAll("ds", w.sets["ds"])
	w.wantCalled(t, "after that", w.newest())
}
