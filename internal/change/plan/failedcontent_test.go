package plan

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
)

// What failed is a template with a content. Another template with that content begins at the canary, and the plan says
// that the content has failed before.
func TestPlanOfATemplateOverContentThatFailed(t *testing.T) {
	for failed, want := range map[string]bool{strings.Repeat("b", 24): true, strings.Repeat("c", 24): false} {
		w := surveytest.New(t)
		ds, _ := w.DaemonSet("log-agent", "example.com/agent:1.4")
		read(w)
		template := w.Revise(ds)
		good, bad := content.Revision(template, strings.Repeat("a", 24)), content.Revision(template, strings.Repeat("b", 24))
		for _, name := range []string{"node-a", "node-b", "node-c"} {
			w.Node(name)
			of := func(p *corev1.Pod) { p.Labels[content.RevisionLabel] = good }
			w.Pod(ds, name, template, surveytest.ReadyAfter(20*time.Second), of)
		}
		w.Policy("careful", "waves: [{name: canary, count: 1}]\nfailure: {then: Rollback}\ncontent: {secrets: Referenced}")
		w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseRolledBack, StableRevision: good,
			TargetRevision: bad, TargetDigest: "sha256:x", DaemonSetGeneration: ds.Generation,
			FailedRevisions: []v1alpha1.FailedRevision{{Revision: content.Revision(template, failed), Why: "it ends"}}})
		next := ds.DeepCopy()
		next.Spec.Template.Spec.Containers[0].Image = "example.com/agent:1.5"
		f := forecast(t, w, ds, next)
		var out bytes.Buffer
		f.Write(&out)
		text := strings.Join(strings.Fields(out.String()), " ")
		if got := strings.Contains(text, "the content that it is to have has failed before, in revision "+bad); got != want {
			t.Errorf("%s failed: that it is said is %t, want %t:\n%s", failed, got, want, &out)
		}
		if want && (len(f.Steps) != 2 || f.Steps[0].Name != "canary" || f.Steps[0].Nodes != 1) {
			t.Errorf("the steps are %+v:\n%s", f.Steps, &out)
		}
	}
}
