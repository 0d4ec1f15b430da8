package ground

import (
	"slices"
	"testing"

	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/test/chaos/plan"
)

// Whatever a round has, its nodes can be made, and those that cannot resize are among them where that is said.
func TestIlls(t *testing.T) {
	for _, policies := range []bool{true, false} {
		for _, trouble := range []plan.Trouble{plan.Usual, plan.Content} {
			for _, varied := range []bool{true, false} {
				for _, rigid := range []bool{true, false} {
					p := &plan.Plan{Policies: policies, Trouble: trouble, Varied: varied, Rigid: rigid, Fetches: policies && varied}
					if !policies && !varied || rigid && !varied {
						continue
					}
					ills, err := illness.Parse(Ills(p))
					if err != nil {
						t.Errorf("%+v: %v", p, err)
						continue
					}
					refuses := slices.ContainsFunc(ills.Faults, func(f illness.Fault) bool {
						return f.NoResize != nil && f.Nodes != nil
					})
					if refuses != rigid || len(ills.Sizes) > 0 != varied {
						t.Errorf("%+v has %d sizes and %d faults; one of resizes: %v", p, len(ills.Sizes), len(ills.Faults), refuses)
					}
				}
			}
		}
	}
}
