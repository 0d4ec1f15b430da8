package matrix

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
)

// A controller that starts again does not take the standstill that it finds for
// progress, and has nothing to write.
func TestStandstillOutlivesARestart(t *testing.T) {
	m, pods := fleet(3)
	info := *m.rows["logs"].Info()
	info.Generation, info.Revision = 2, "b"
	m.Step(info)
	pods[0].Revision, pods[0].Ready, pods[0].ReadySince = "b", false, time.Time{}
	m.Step(pods[0])
	m.Ready()
	m.Step(fact.Now{Time: noon.Add(2 * time.Minute)})
	m.Ready()
	info.Reported, info.Conditions = m.rows["logs"].Status(), m.rows["logs"].Conditions()
	if got := info.Conditions.Progressing; got.Reason != fact.BudgetExhausted || got.Status != corev1.ConditionFalse ||
		!strings.HasSuffix(got.Message, "rollout waits: 1 unavailable, 1 allowed: node-00000 (pod logs-0 is not ready)") {
		t.Fatalf("the rollout stands still and Progressing is %+v", got)
	}

	again := New(row.Config{})
	again.Step(fact.Now{Time: noon.Add(3 * time.Minute)})
	for i := range pods {
		again.Step(fleetNode(i))
		again.Step(pods[i])
	}
	again.Step(info)
	if actions := again.Ready(); len(actions) > 0 {
		t.Errorf("after a restart it wants %s", actions)
	}
	if got := again.rows["logs"].Conditions(); got != info.Conditions {
		t.Errorf("after a restart the conditions are\n%+v, want\n%+v", got, info.Conditions)
	}
}
