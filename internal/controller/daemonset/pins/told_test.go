package pins

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// People are told which digests a template has once its first node has them: an event once, also when the controller
// starts again, and the rollout for as long as it is so.
func TestDigestsAreTold(t *testing.T) {
	w := newWorld(t, pinned)
	for _, node := range []string{"n0", "n1", "n2", "n3", "n4", "n5"} {
		w.slow[node] = true
	}
	w.start()
	w.pass(time.Minute)
	if lines := w.stored.Images.Lines(); len(w.pinned) > 0 || slices.ContainsFunc(lines, isDigest) {
		t.Errorf("before anybody knows a digest people are told %q and %q", w.pinned, lines)
	}
	clear(w.slow)
	w.again()
	w.pass(10 * time.Minute)
	first := w.stored.Images.Templates[0].Node
	want := []string{"template t1: node " + first + " got demo:v1 as " + sha(1) +
		", registry.example.com:5000/team/b:2 as " + sha(2)}
	if !slices.Equal(w.pinned, want) {
		t.Errorf("events say %q, want %q", w.pinned, want)
	}
	lines := []string{"image demo:v1 is " + sha(1) + ", which " + first + " got",
		"image registry.example.com:5000/team/b:2 is " + sha(2) + ", which " + first + " got"}
	if got := w.stored.Images.Lines(); !slices.Equal(got, lines) {
		t.Errorf("the rollout says %q, want %q", got, lines)
	}
	w.start()
	w.pass(time.Minute)
	if !slices.Equal(w.pinned, want) {
		t.Errorf("after a start events say %q", w.pinned)
	}
	w.registry["demo:v1"] = sha(5)
	w.edit()
	w.pass(10 * time.Minute)
	if len(w.pinned) != 2 || !strings.HasPrefix(w.pinned[1], "template t2: node ") || !strings.Contains(w.pinned[1], sha(5)) {
		t.Errorf("of the next template events say %q", w.pinned)
	}
}

func isDigest(line string) bool { return strings.Contains(line, "sha256:") }
