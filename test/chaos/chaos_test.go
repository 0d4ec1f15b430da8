package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testenv/needs"
	"github.com/everynode/everynode/test/chaos/plan"
)

// TestShortSeries plays a few rounds, one of them on the real program.
func TestShortSeries(t *testing.T) {
	binary := needs.Everynode(t, "../..")
	quiet()
	var out bytes.Buffer
	o := options{binary: binary, length: 1500 * time.Millisecond, keep: t.TempDir()}
	const first, rounds = 1, 6
	if bad := series(t.Context(), &out, first, rounds, 2, o); bad > 0 {
		t.Errorf("%d rounds broke a promise:\n%s", bad, &out)
	}
}

// The last change of a round whose nodes fetch images is one in which they all are waited for.
func TestLastChangeFetches(t *testing.T) {
	u := &user{plan: plan.Plan{Fetches: true, Ramps: true}}
	var spec v1alpha1.RolloutPolicySpec
	u.setPolicy(&spec, plan.Calm, plan.Waits)
	if len(spec.Waves) != 2 || len(spec.Windows) > 0 || spec.Selector != nil || spec.Pace.NodesPerMinute != nil {
		t.Errorf("the policy is %+v", spec)
	}
	for _, w := range spec.Waves {
		if !w.Fetch || w.FetchDeadline != "15s" || w.Approval != "" || w.Ramp != nil {
			t.Errorf("one of its waves is %+v", w)
		}
	}
}
