package loops

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/testenv"
)

// template changes the image and the node selector of the DaemonSet; nil takes that away.
func (f *fleet) template(image string, selector map[string]any) {
	f.t.Helper()
	spec := map[string]any{"containers": []any{map[string]any{"name": "c", "image": image}}, "nodeSelector": selector}
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": spec}}})
	if err != nil {
		f.t.Fatal(err)
	}
	patchDaemonSet(f.t, f.Env, string(body))
}

// label gives nodes a label.
func (f *fleet) label(value string, some int) {
	f.t.Helper()
	nodes, err := f.Client.CoreV1().Nodes().List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	body := fmt.Sprintf(`{"metadata":{"labels":{"disk":%q}}}`, value)
	for i := range nodes.Items[:some] {
		if _, err := f.Client.CoreV1().Nodes().Patch(f.t.Context(), nodes.Items[i].Name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fleet) approve() {
	f.t.Helper()
	r, err := f.rollout(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	f.spec(map[string]any{"approved": map[string]any{"revision": r.Status.TargetRevision, "digest": r.Status.TargetDigest, "step": "canary"}})
}

// A typo in a node selector takes the daemon from the canary and from nobody else.
func TestPlacementChangesStepByStep(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 10, "waves: [{name: canary, count: 2, approval: Manual}]")
	f.label("ssd", 4)
	f.template("demo:v1", map[string]any{"disk": "sdd"})
	f.phase(v1alpha1.PhaseWaitingForApproval)
	f.runs(map[string]int{"demo:v1": 8})
	f.Restart(testenv.SimulatedNodes(10))
	f.phase(v1alpha1.PhaseWaitingForApproval)
	f.runs(map[string]int{"demo:v1": 8})
	f.Eventually("the nodes of the step to come are desired", func(ctx context.Context) error {
		ds, err := f.Client.AppsV1().DaemonSets("default").Get(ctx, "logs", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if st := ds.Status; st.DesiredNumberScheduled != 8 || st.NumberMisscheduled != 0 || st.UpdatedNumberScheduled != 0 {
			return fmt.Errorf("the status is %+v", st)
		}
		return nil
	})

	// Who aborts it has the daemon back everywhere.
	r, err := f.rollout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.spec(map[string]any{"abort": map[string]any{"revision": r.Status.TargetRevision, "digest": r.Status.TargetDigest}})
	f.phase(v1alpha1.PhaseRolledBack)
	f.runs(map[string]int{"demo:v1": 10})

	// The right label leaves six nodes out, in their step.
	f.template("demo:v1", map[string]any{"disk": "ssd"})
	f.phase(v1alpha1.PhaseWaitingForApproval)
	f.approve()
	f.phase(v1alpha1.PhaseComplete)
	f.runs(map[string]int{"demo:v1": 4})

	// And nodes that come back wait for theirs.
	f.template("demo:v2", nil)
	f.phase(v1alpha1.PhaseWaitingForApproval)
	f.Eventually("the canary has it", func(context.Context) error {
		if got := f.images(); got["demo:v2"] != 2 || got["demo:v1"] < 2 || got["demo:v1"] > 4 {
			return fmt.Errorf("nodes run %v", got)
		}
		return nil
	})
	f.approve()
	f.phase(v1alpha1.PhaseComplete)
	f.runs(map[string]int{"demo:v2": 10})
}
