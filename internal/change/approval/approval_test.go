package approval

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

func of(revision string, change int64) *v1alpha1.StepApproval {
	return &v1alpha1.StepApproval{Revision: revision, Digest: "d", Step: "canary", Change: change}
}

// What a status knows says of which change an approval is, and no number is given twice.
func TestConsent(t *testing.T) {
	for name, c := range map[string]struct {
		change       int64
		heard, given *v1alpha1.StepApproval
		retried      bool
		counts       bool
		next         int64
	}{
		"none":                                  {5, nil, nil, false, false, 6},
		"one that was taken back":               {5, of("b", 5), nil, false, false, 6},
		"of this change":                        {5, nil, of("b", 5), false, true, 6},
		"of this change, and another revision":  {5, nil, of("a", 5), false, false, 6},
		"without a number":                      {5, nil, of("b", 0), false, true, 6},
		"without a number, heard in it":         {5, of("b", 5), of("b", 0), false, true, 6},
		"without a number, heard before":        {5, of("b", 3), of("b", 0), false, false, 6},
		"without a number, of another revision": {5, of("a", 3), of("b", 0), false, true, 6},
		"without a number, before any":          {0, nil, of("b", 0), false, true, 1},
		"heard before any, and later":           {1, of("b", 0), of("b", 0), false, false, 2},
		"of an earlier change":                  {5, nil, of("b", 4), false, false, 6},
		"of a retry that is asked for":          {5, nil, of("b", 6), true, false, 6},
		"without a number, with a retry":        {5, nil, of("b", 0), true, false, 6},
		"of a change that nobody remembers":     {0, nil, of("b", 5), false, false, 7},
	} {
		consent := Recall(&v1alpha1.DaemonSetRolloutStatus{Change: c.change, Approved: c.heard})
		for range 2 { // the same once more is no other
			consent.Hear(c.given, c.retried)
		}
		a, void := consent.To("b", "d")
		if (a != nil) != c.counts || a != nil && void != "" {
			t.Errorf("%s: it counts as %+v, void %q", name, a, void)
		}
		if a, _ := consent.To("b", "another"); a != nil {
			t.Errorf("%s: it counts for another template", name)
		}
		if consent.Next(); consent.Change() != c.next {
			t.Errorf("%s: the next change is %d, want %d", name, consent.Change(), c.next)
		}
		again := &v1alpha1.DaemonSetRolloutStatus{}
		consent.Tell(again)
		next := Recall(again)
		next.Hear(c.given, false)
		is, _ := consent.To("b", "d")
		was, _ := next.To("b", "d")
		if (is != nil) != (was != nil) || (is != nil) != (c.retried) {
			t.Errorf("%s: in the next change it counts: %t, and after a start %t", name, is != nil, was != nil)
		}
	}
	consent := Recall(&v1alpha1.DaemonSetRolloutStatus{Change: 5})
	consent.Hear(of("b", 4), false)
	if _, void := consent.To("b", "d"); !strings.Contains(void, "the approval of revision b was for an earlier change; approve again") {
		t.Errorf("of one that is void it says %q", void)
	}
}
