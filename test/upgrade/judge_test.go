package main

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// tale makes a history: of each pod, by name, what becomes of it on a node.
type tale []moment

func (t tale) tells(uid, node string, m moment) tale {
	m.daemon, m.uid, m.name, m.node, m.revision = "agent", types.UID(uid), uid, node, "t.c"
	return append(slices.Clip(t), m)
}

func (t tale) comes(uid, node string, reads ...string) tale {
	return t.tells(uid, node, moment{first: true, reads: reads})
}

func (t tale) works(uid, node string) tale { return t.tells(uid, node, moment{available: true}) }
func (t tale) fails(uid, node string) tale { return t.tells(uid, node, moment{}) }
func (t tale) goes(uid, node string) tale  { return t.tells(uid, node, moment{going: true}) }
func (t tale) ends(uid, node string) tale  { return t.tells(uid, node, moment{gone: true}) }

func TestJudge(t *testing.T) {
	three := tale{}
	for pod, node := range map[string]string{"a": "n1", "b": "n2", "c": "n3"} {
		three = three.comes(pod, node).works(pod, node)
	}
	again := three.goes("a", "n1").ends("a", "n1")
	old := moment{daemon: "agent", uid: "a", node: "n1", available: true, reads: []string{"bad"}}
	known := append(slices.Clip(three), old)
	older := append(slices.Clip(three), moment{daemon: "agent", uid: "o", node: "n1", gone: true})
	elsewhere := append(slices.Clip(three), moment{first: true, daemon: "other", reads: []string{"bad"}, gone: true})
	for name, c := range map[string]struct {
		history                  tale
		byUs                     string
		over, replaced, badlyFed int
	}{
		"nothing happens":              {three, "", 0, 0, 0},
		"one after the other":          {again.comes("d", "n1").works("d", "n1").goes("b", "n2"), "", 0, 2, 0},
		"the second too soon":          {again.comes("d", "n1").goes("b", "n2"), "", 1, 2, 0},
		"those that vanish at once":    {three.ends("a", "n1").ends("b", "n2"), "", 1, 2, 0},
		"who fails takes up the limit": {three.fails("a", "n1").goes("b", "n2"), "", 1, 1, 0},
		"who fails may be taken":       {three.fails("a", "n1").goes("a", "n1").goes("a", "n1"), "", 0, 1, 0},
		"what the scenario took":       {three.goes("a", "n1").goes("b", "n2"), "b", 0, 1, 0},
		"... but the next one is":      {three.goes("a", "n1").goes("b", "n2"), "a", 1, 1, 0},
		"a pod of the same node":       {again.comes("a2", "n1").works("a2", "n1").goes("a2", "n1"), "", 0, 2, 0},
		"what was taken back":          {three.comes("d", "n4", "token", "bad"), "", 0, 0, 1},
		"one that is known already":    {known, "", 0, 0, 0},
		"what the older program made":  {older, "", 0, 0, 0},
		"of another daemon":            {elsewhere, "", 0, 0, 0},
	} {
		byUs := map[types.UID]bool{types.UID(c.byUs): true}
		over := overLimit(c.history, "agent", 1, byUs)
		went := replaced(c.history, "agent", byUs)
		fed := reading(c.history, "agent", "bad")
		if len(over) != c.over || len(went) != c.replaced || len(fed) != c.badlyFed {
			t.Errorf("%s: over the limit %q, replaced %q, given what was taken back %q", name, over, went, fed)
		}
	}
}

// Who went, but for what the scenario took, and who has had anything else than its node had.
func TestJudgeOfVariants(t *testing.T) {
	history := tale{}.tells("a", "n1", moment{given: "8"}).tells("a", "n1", moment{given: "16"}).
		tells("b", "n2", moment{given: "1"}).goes("b", "n2").ends("b", "n2").
		tells("c", "n2", moment{given: "1"}).goes("c", "n2")
	was := map[string]string{"agent n1": "8", "agent n2": "1", "other n1": "9"}
	if got := strayed(history[:4], "agent", was); len(got) != 2 {
		t.Errorf("those with another variant are %q", got)
	}
	if got := gone(history, "agent", map[types.UID]bool{"c": true}); len(got) != 2 {
		t.Errorf("those that went are %q", got)
	}
	if got := append(gone(history, "other", nil), strayed(history, "other", was)...); len(got) > 0 {
		t.Errorf("of another daemon it says %q", got)
	}
}
