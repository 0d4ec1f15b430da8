package loops

import (
	"testing"

	"github.com/everynode/everynode/internal/testenv"
)

// TestInOnePlane shares a control plane between tests that keep to namespaces and names of their own.
func TestInOnePlane(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t, testenv.SimulatedNodes(2))
	for name, test := range map[string]func(*testing.T, *testenv.Env){
		"root CA is published":       rootCAIsPublished,
		"default service account":    defaultServiceAccount,
		"namespace is deleted":       namespaceIsDeleted,
		"finalizer holds namespace":  finalizerHoldsNamespace,
		"cascades":                   cascades,
		"foreground waits":           foregroundWaits,
		"owner in another namespace": ownerInAnotherNamespace,
		"status of a policy":         statusSaysWhatIsWrongWithExpressions,
		"leaving a policy":           leavingAPolicyTakesTheRightToApprove,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, env.For(t))
		})
	}
}
