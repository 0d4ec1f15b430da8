package plan

import (
	"bytes"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/change/variant"
)

// TestPlanInTheMiddle: what stands still stays so, whatever is applied, and the exit code says it.
func TestPlanInTheMiddle(t *testing.T) {
	waiting := v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseWaitingForApproval, Message: "step canary is complete"}
	failed := v1alpha1.DaemonSetRolloutStatus{
		Phase: v1alpha1.PhaseRolledBack, Message: "failed on 2 of 2 nodes",
		FailedRevisions: []v1alpha1.FailedRevision{{Why: "failed on 2 of 2 nodes", Action: v1alpha1.FailureRollback, Time: surveytest.Ago(time.Minute)}},
	}
	same := func(*appsv1.DaemonSet) {}
	for title, c := range map[string]struct {
		policy string
		on     int // so many nodes have the target
		status v1alpha1.DaemonSetRolloutStatus
		spec   v1alpha1.DaemonSetRolloutSpec
		edit   func(*appsv1.DaemonSet)

		changes     bool
		says, never []string
	}{
		"the policy went, and the template changes": {
			on: 1, status: waiting, edit: newer, changes: true,
			says: []string{"9 change", "after approval of step WithoutPolicy", "Warning: its policy was deleted; approve step WithoutPolicy"}, never: []string{"now"},
		},
		"the policy went, and nothing changes": {
			on: 1, status: waiting, edit: same,
			says: []string{"nothing changes before approval of step WithoutPolicy", "after approval of step WithoutPolicy"}, never: []string{"now"},
		},
		"the canary waits for approval": {
			policy: waves, on: 1, status: waiting, edit: same,
			says:  []string{"revision 2: nothing changes before approval of canary", "zones/a        4        2        0  after approval of canary, then 5m soak", "zones/b        4        3        0  after zones/a"},
			never: []string{"now", "Warning: step canary"},
		},
		"somebody paused it": {
			policy: waves, status: waiting, spec: v1alpha1.DaemonSetRolloutSpec{Paused: true}, edit: same,
			says: []string{"nothing changes before resume", "canary         1        1        0  after resume, then 10m soak, then approval"}, never: []string{"now"},
		},
		"it was rolled back": {
			policy: waves, status: failed, edit: same,
			says: []string{"revision 2: nothing changes\n", "failed on 2 of 2 nodes; it is not tried without"}, never: []string{"now", "About"},
		},
		"it was rolled back, and the next template comes": {
			policy: waves, status: failed, edit: newer, changes: true,
			says: []string{"revision 2 -> new", "9 change", "canary         1        1        0  now, then 10m soak, then approval"},
		},
		"a rollback is under way": {
			policy: waves, on: 1, status: failed, edit: same, changes: true,
			says: []string{"revision 2 stays", "all         1        1        0  now"}, never: []string{"zones"},
		},
		"it goes on by itself": {
			policy: "waves: [{name: canary, nodes: {matchLabels: {canary: \"yes\"}}, soak: 2h}, {name: zones, each: zone, soak: 5m}]", on: 1,
			status: v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseSoaking}, edit: same, changes: true,
			says: []string{"revision 2 stays", "zones/a        4        1        0  after canary, then 5m soak", "3 min of changing and 70 min of soaking"},
		},
	} {
		w, ds := cluster(t)
		old, newest := w.Objects.Revisions[0].Labels[appsv1.ControllerRevisionHashLabelKey], w.Objects.Revisions[1].Labels[appsv1.ControllerRevisionHashLabelKey]
		for i, p := range w.Objects.Pods {
			if i >= c.on && p.Labels["app"] == ds.Name {
				p.Labels[appsv1.ControllerRevisionHashLabelKey] = old
			}
		}
		st := c.status
		st.StableRevision, st.TargetRevision, st.Step, st.DaemonSetGeneration = old, newest, "canary", ds.Generation
		st.FailedRevisions = append([]v1alpha1.FailedRevision{}, st.FailedRevisions...)
		for i := range st.FailedRevisions {
			st.FailedRevisions[i].Revision = newest
		}
		w.Rollout(ds, st).Spec = c.spec
		if c.policy != "" {
			w.Policy("careful", c.policy)
		}
		f, err := Make(survey.New(w.Objects), ds, edited(ds, c.edit))
		if err != nil {
			t.Fatal(err)
		}
		judge(t, title, f, c.changes, c.says, c.never)
	}
}

// A change of content alone whose policy went stands still. Consent to go on without one replaces no pod: content is a
// part of revisions by a policy only.
func TestPlanInTheMiddleOfContent(t *testing.T) {
	for title, c := range map[string]struct {
		approved bool
		edit     func(*appsv1.DaemonSet)
		changes  bool
		says     []string
		never    []string
	}{
		"nothing changes": {
			says: []string{"nothing changes before approval of step WithoutPolicy", "3 nodes: 3 stay", "Warning: its policy was deleted; approve step WithoutPolicy",
				"Warning: without a policy content is no part of revisions: with that approval each pod keeps what it has until it is next made"},
			never: []string{"from"},
		},
		"it was approved": {approved: true, says: []string{"nothing changes\n"}, never: []string{"WithoutPolicy"}},
		"the template changes": {
			edit: newer, changes: true, says: []string{"3 change", "after approval of step WithoutPolicy"}, never: []string{"content is no part"},
		},
	} {
		w, ds, was := ofContent(t, "content: {secrets: Referenced}")
		is := content.Revision(content.TemplateOf(was), strings.Repeat("b", 24))
		copied(is)(w.Objects.Pods[0])
		w.Objects.Policies = nil
		r := w.Objects.Rollouts[0]
		r.Status.TargetRevision, r.Status.Phase, r.Status.Step, r.Status.Change = is, v1alpha1.PhaseWaitingForApproval, "canary", 2
		if c.approved {
			r.Spec.Approved = &v1alpha1.StepApproval{Revision: is, Digest: r.Status.TargetDigest, Step: v1alpha1.WithoutPolicy, Change: 2}
		}
		next := ds
		if c.edit != nil {
			next = edited(ds, c.edit)
		}
		f := forecast(t, w, ds, next)
		judge(t, title, f, c.changes, c.says, c.never)
	}
}

// A step whose nodes have the revision already is not listed. That it soaks is not said of the one before it.
func TestPlanOfAStepThatOnlySoaks(t *testing.T) {
	w := surveytest.New(t)
	ds, hashes := w.DaemonSet("log-agent", "example.com/agent:1", "example.com/agent:2")
	for _, n := range []struct {
		name, canary, zone, revision string
		took                         time.Duration
	}{
		{"node-0", "yes", "a", hashes[0], 20 * time.Second}, {"node-1", "no", "a", hashes[1], 55 * time.Minute},
		{"node-2", "no", "b", hashes[0], 20 * time.Second}, {"node-3", "no", "b", hashes[0], 20 * time.Second},
	} {
		w.Node(n.name, surveytest.Label("zone", n.zone), surveytest.Label("canary", n.canary))
		w.Pod(ds, n.name, n.revision, surveytest.ReadyAfter(n.took))
	}
	w.Policy("careful", `waves: [{name: canary, nodes: {matchLabels: {canary: "yes"}}}, {name: zones, each: zone, soak: 20m}]`)
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{
		Phase: v1alpha1.PhaseProgressing, StableRevision: hashes[0], TargetRevision: hashes[1], Step: "canary",
		DaemonSetGeneration: ds.Generation,
	})
	f := forecast(t, w, ds, ds)
	from := map[string]string{}
	for _, s := range f.Steps {
		from[s.Name] = s.From
	}
	if len(from) != 2 || from["canary"] != "now" || !strings.HasSuffix(from["zones/b"], "then 20m soak") {
		t.Errorf("the steps begin %q", from)
	}
	if soaks := f.Estimate.Soaking.Round(time.Minute); soaks != 35*time.Minute {
		t.Errorf("it soaks for %s", soaks)
	}
}

// A pod that cannot be made has the others wait for a moment. Nobody answers sooner.
func TestPlanOfWhatComesBeforeAnybodyAnswers(t *testing.T) {
	w := surveytest.New(t)
	ds, hashes := w.DaemonSet("log-agent", "example.com/agent:1", "example.com/agent:2")
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: "bad", UID: "bad"}}
	v.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"size": "bad"}}
	v.Spec.Resources = map[string]v1alpha1.VariantResources{"agent": {Requests: map[corev1.ResourceName]string{
		corev1.ResourceCPU: "node.labels['cores'] == '' ? 1.0 : 2.0",
	}}}
	w.Objects.Variants = []*v1alpha1.DaemonSetVariant{v}
	set, err := variant.NewSet([]variant.Variant{variant.Of(v)})
	if err != nil {
		t.Fatal(err)
	}
	stable := content.WithVariants(hashes[0], set.ID)
	two := intstr.FromInt32(2)
	ds.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = &two
	w.Node("node-0", surveytest.Label("size", "bad"))
	w.Node("node-1")
	for _, name := range []string{"node-2", "node-3", "node-4"} {
		w.Node(name)
		w.Pod(ds, name, stable, surveytest.ReadyAfter(20*time.Second))
	}
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{
		Phase: v1alpha1.PhasePaused, StableRevision: stable, TargetRevision: content.WithVariants(hashes[1], set.ID),
		Step: "canary", TargetDigest: "sha256:x", DaemonSetGeneration: ds.Generation,
	})
	f := forecast(t, w, ds, ds)
	if !f.Changes() || f.WaitsFor != "" || f.Nodes.Change != 4 {
		t.Errorf("all wait for %q, then %+v", f.WaitsFor, f.Nodes)
	}
}

// judge checks that something changes or not, and what people are told.
func judge(t *testing.T, title string, f *Forecast, changes bool, says, never []string) {
	t.Helper()
	var out bytes.Buffer
	f.Write(&out)
	text := strings.ReplaceAll(out.String(), "\n    ", " ")
	if f.Changes() != changes {
		t.Errorf("%s: that something changes is %v:\n%s", title, f.Changes(), text)
	}
	for _, want := range says {
		if !strings.Contains(text, want) {
			t.Errorf("%s: it says\n%s\nwithout %q", title, text, want)
		}
	}
	for _, bad := range never {
		if strings.Contains(text, bad) {
			t.Errorf("%s: it says\n%s\nwith %q", title, text, bad)
		}
	}
}
