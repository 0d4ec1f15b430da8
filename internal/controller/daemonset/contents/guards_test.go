package contents

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
)

// decided are rows that have decided where the rollout stands, or not yet.
type decided struct {
	Rows
	stable string
}

func (d decided) Rollout(types.UID) (v1alpha1.DaemonSetRolloutStatus, bool) {
	return v1alpha1.DaemonSetRolloutStatus{StableRevision: d.stable}, d.stable != ""
}

// TestStood: the stable revision of a rollout that names it by its template has the content that most pods have kept,
// unless it failed, or another revision is stable by now.
func TestStood(t *testing.T) {
	for name, c := range map[string]struct {
		without int // so many of five pods have no content
		stable  string
		failed  bool
		want    bool
	}{
		"all have kept it":                {0, "", false, true},
		"most have":                       {2, "", false, true},
		"most have none":                  {3, "", false, false},
		"it has failed":                   {0, "", true, false},
		"the same is stable":              {0, "t1", false, true},
		"another one has come to be that": {0, "t0", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, careful)
			kept := w.status().StableRevision
			for i := range c.without {
				p := w.pods[fmt.Sprint("n", i)]
				w.book.Step(fact.PodGone(p.UID))
				p.UID, p.Revision = types.UID(fmt.Sprint("plain", i)), "t1"
				w.book.Step(p)
			}
			s := w.book.sets[w.set.UID]
			st := &v1alpha1.DaemonSetRolloutStatus{StableRevision: "t1", TargetRevision: "t1"}
			if c.failed {
				st.FailedRevisions = []v1alpha1.FailedRevision{{Revision: kept}}
			}
			s.rollout.Status, s.told = st, nil
			w.book.rename(w.set.UID, s) // which calls pods by their templates
			w.book.rows = decided{w.book.rows, c.stable}
			want := ""
			if c.want {
				want = kept
			}
			if got := w.book.stood(w.set.UID, s); got != want {
				t.Errorf("it is %q, want %q", got, want)
			}
		})
	}
}
