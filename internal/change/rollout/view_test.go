package rollout

import (
	"strings"
	"testing"

	"github.com/everynode/everynode/api/v1alpha1"
)

// TestViewTellsOfImagesBeforeTheirTurn: how many nodes fetch and have them stands beside each step, and what hinders it
// before the steps.
func TestViewTellsOfImagesBeforeTheirTurn(t *testing.T) {
	s := State{Phase: v1alpha1.PhaseProgressing, Message: "images are awaited on 2 nodes", Step: "canary",
		Fetch: &v1alpha1.FetchStatus{Message: "pods that fetch images are not made: exceeded quota", ByPods: true},
		Steps: []v1alpha1.StepStatus{
			{Name: "canary", Nodes: 3, Fetching: 2, Fetched: 1}, {Name: "rest", Nodes: 7},
		}}
	var out strings.Builder
	if err := (View{Width: 120}).Show(&out, s); err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, want := range []string{
		"images are awaited on 2 nodes", "exceeded quota", "canary", "2 fetching, 1 fetched\n", "rest",
	} {
		next := strings.Index(out.String(), want)
		if next <= at {
			t.Errorf("%q is not there, or not in its place:\n%s", want, &out)
		}
		at = max(at, next)
	}
	if strings.Count(out.String(), "fetching") != 1 {
		t.Errorf("it says of a step that fetches nothing that it does:\n%s", &out)
	}
}
