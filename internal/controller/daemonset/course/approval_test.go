package course

import (
	"testing"
	"time"

	"github.com/everynode/everynode/api/v1alpha1"
)

// The only node behind the canary is made again, as who repairs one does. The canary waits for approval.
func TestApprovalIsNotSkippedWhenALaterNodeIsMadeAgain(t *testing.T) {
	w := newWorld()
	w.addNode("canary", map[string]string{"fleet": "canary"}, "v1")
	w.addNode("prod", map[string]string{"fleet": "prod"}, "v1")
	w.start(policy(t, "waves: [{name: canary, nodes: {matchLabels: {fleet: canary}}, approval: Manual}]"), dsWith("v1", 1))
	w.update("v2")
	w.pass(time.Minute)
	w.expect(t, v1alpha1.PhaseWaitingForApproval, "canary")
	w.removeNode("prod")
	w.pass(time.Second)
	w.addNode("prod", map[string]string{"fleet": "prod"}, "")
	w.pass(time.Minute)
	phase, message := w.course.Phase()
	if r := w.nodes["prod"].daemon.Revision; r != "v1" {
		t.Errorf("nobody approved, and the other node has %s; %s: %s", r, phase, message)
	}
}
