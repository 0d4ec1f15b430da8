package judge

import (
	"testing"
	"time"
)

// TestJudgeVariants: a revision fails together with its variants, and the same template with others may go out again.
func TestJudgeVariants(t *testing.T) {
	says := func(goal, phase string, failed ...string) Entry {
		e := rollout("old", "new", "canary", phase, failed...)
		e.Rollout.Goal = goal
		return e
	}
	with := func(whole string) Entry {
		e := pod("a", "n1", "new")
		e.Pod.Whole = whole
		return e
	}
	failed := func() *story {
		return answered().add(says("new_x", "RolledBack", "new_x")).after(time.Minute)
	}
	for name, c := range map[string]struct {
		is   *story
		want string
	}{
		"with the variants that failed":           {failed().add(with("new_x")), "revision failed"},
		"with others":                             {failed().add(says("new_y", "Progressing", "new_x"), with("new_y")), ""},
		"with others, and it is that which fails": {failed().add(says("new_y", "Progressing", "new_x"), with("new_x")), "failed"},
		"with those that failed, tried again": {
			failed().add(Entry{Retries: "ds"}, says("new_x", "Progressing"), with("new_x")),
			"",
		},
		"without any, once": {failed().add(says("", "Progressing", "new_x"), with("")), ""},
	} {
		t.Run(name, func(t *testing.T) { c.is.breaks(t, c.want) })
	}
}
