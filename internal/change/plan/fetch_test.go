package plan

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/survey"
)

// A step waits for images as the rollout has it wait, also one that is still to come of a change under way: not where
// the controller asks nobody, nor where nodes go back. Nodes that do not answer, as node-9 does not, or that cannot be
// asked are waited for: that takes its time.
func TestPlanOfStepsThatFetch(t *testing.T) {
	const (
		waves   = "waves: [{name: canary, nodes: {matchLabels: {canary: \"yes\"}}}, {name: zones, each: zone, fetch: true, fetchDeadline: 20m}]"
		awaited = ", once its nodes have the images"
	)
	for title, c := range map[string]struct {
		able        bool
		status      v1alpha1.DaemonSetRolloutStatus
		edit        func(*appsv1.DaemonSet)
		changes     bool
		says, never []string
	}{
		"a change begins": {edit: newer, able: true, changes: true,
			says: []string{"0  now\n", "after canary" + awaited, "after zones/a" + awaited, "23 min of changing"}, never: []string{"the agents of"}},
		"it is under way": {edit: func(*appsv1.DaemonSet) {}, able: true, changes: true,
			says: []string{"now" + awaited, "after zones/a" + awaited, "23 min of changing"}, never: []string{"the agents of"}},
		"no agent can be asked": {edit: func(*appsv1.DaemonSet) {}, changes: true,
			says: []string{"now" + awaited, "the agents of 8 nodes", "each is waited for until fetchDeadline", "43 min of changing"}},
		"pods ask": {edit: func(*appsv1.DaemonSet) {}, changes: true, status: v1alpha1.DaemonSetRolloutStatus{Fetch: &v1alpha1.FetchStatus{ByPods: true}},
			says: []string{"now" + awaited}, never: []string{"the agents of"}},
		"the controller asks nobody": {edit: func(*appsv1.DaemonSet) {}, changes: true, status: v1alpha1.DaemonSetRolloutStatus{Fetch: &v1alpha1.FetchStatus{Message: v1alpha1.NoFetch}},
			never: []string{awaited, "the agents of"}},
		"nodes go back": {edit: func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Containers[0].Image = "example.com/agent:1.3" }, changes: true, never: []string{awaited, "the agents of"}},
	} {
		w, ds := cluster(t)
		old, newest := w.Objects.Revisions[0].Labels[appsv1.ControllerRevisionHashLabelKey], w.Objects.Revisions[1].Labels[appsv1.ControllerRevisionHashLabelKey]
		for i, p := range w.Objects.Pods {
			if i > 0 && p.Labels["app"] == ds.Name {
				p.Labels[appsv1.ControllerRevisionHashLabelKey] = old
			}
		}
		for _, n := range w.Objects.Nodes {
			if c.able {
				n.Labels[fetch.Name] = "true"
			}
		}
		st := c.status
		st.StableRevision, st.TargetRevision, st.Step, st.DaemonSetGeneration = old, newest, "canary", ds.Generation
		w.Rollout(ds, st)
		w.Policy("careful", waves)
		f, err := Make(survey.New(w.Objects), ds, edited(ds, c.edit))
		if err != nil {
			t.Fatal(err)
		}
		judge(t, title, f, c.changes, c.says, c.never)
	}
}
