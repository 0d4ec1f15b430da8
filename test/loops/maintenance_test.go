package loops

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
)

// Somebody works on half the nodes, and says so by one of the conditions each. A change is complete without them, and
// reaches them when that is over.
func TestNodesInMaintenanceAreChangedAfterIt(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 8, "waves: [{name: canary, count: 2}]\nnodeFaults: {max: 0}")
	conditions := []corev1.NodeConditionType{corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress,
		corev1.NodeDrained, corev1.NodeGracefulNodeShutdownInProgress}
	nodes, err := f.Client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	say := func(is corev1.ConditionStatus) {
		for i, condition := range conditions {
			patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q,"reason":"Kernel"}]}}`, condition, is)
			_, err := f.Client.CoreV1().Nodes().Patch(t.Context(), nodes.Items[i].Name, types.StrategicMergePatchType,
				[]byte(patch), metav1.PatchOptions{}, "status")
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	say(corev1.ConditionTrue)
	f.setImage("demo:v2")
	r := f.phase(v1alpha1.PhaseComplete, "4 of 8 nodes have revision", "4 in maintenance")
	f.runs(map[string]int{"demo:v1": 4, "demo:v2": 4})
	if n := r.Status.Counts["InMaintenance"]; n != 4 {
		t.Errorf("the status counts %v", r.Status.Counts)
	}
	say(corev1.ConditionFalse)
	f.runs(map[string]int{"demo:v2": 8})
	f.phase(v1alpha1.PhaseComplete, "8 of 8 nodes have revision")
}
