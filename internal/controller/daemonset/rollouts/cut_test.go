package rollouts

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

// What a policy's status says is written once, wherever in a letter its message has to be cut.
func TestALongMessageIsWrittenOnce(t *testing.T) {
	for i := range 2 {
		w := newWorld()
		zone := strings.Repeat("x", i) + strings.Repeat("ü", 600)
		w.policy(t, "first", fmt.Sprintf(`windows: [{from: "09:00", to: "16:00", timeZone: %s}]`, zone))
		writes := 0
		for range 5 {
			for _, j := range w.Jobs() {
				writes++
				raw, err := json.Marshal(j.Policy)
				if err != nil {
					t.Fatal(err)
				}
				stored := &v1alpha1.RolloutPolicy{}
				err = json.Unmarshal(raw, stored)
				if err != nil {
					t.Fatal(err)
				}
				w.Step(Result{Job: j, Policy: stored})
			}
		}
		if writes != 1 {
			t.Errorf("%d letters before: it is written %d times", i, writes)
		}
	}
}
