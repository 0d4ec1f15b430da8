package rollouts

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/course"
)

// mark has an object say that it holds a field that nobody here knows, or none any more.
func (w *world) mark(o *metav1.ObjectMeta, field string) {
	w.version++
	o.ResourceVersion = w.object("", "").ResourceVersion
	o.Annotations = nil
	if field != "" {
		o.Annotations = map[string]string{newer.Annotation: field}
	}
}

// Whoever does not know all that a policy says follows none of it, and writes nothing into it. Its generation tells
// nothing of that: a field may be known to the one server and not to the next.
func TestAPolicyOfANewerProgram(t *testing.T) {
	w := newWorld()
	p := w.policy(t, "first", "")
	w.daemonSet("logs", "u1")
	w.write(t)
	next := p.DeepCopy()
	w.mark(&next.ObjectMeta, "spec.quorum")
	w.Step(Policy{Object: next})
	got := w.rows.told["u1"]
	if got.Following != course.Lost || got.Policy != nil || got.PolicyUID != "first" || got.Newer ||
		!strings.HasPrefix(got.Why, "policy first cannot be followed: it has fields") || !strings.Contains(got.Why, "spec.quorum") {
		t.Errorf("it is told %+v", got)
	}
	if s := w.write(t); len(s) > 0 {
		t.Errorf("its status is written: %v", s)
	}
	next = next.DeepCopy()
	w.mark(&next.ObjectMeta, "")
	w.Step(Policy{Object: next})
	if got := w.rows.told["u1"]; got.Following != course.Followed || got.Policy == nil {
		t.Errorf("it is told %+v once nothing is strange", got)
	}
}

// Nor does anybody go by a rollout, or write it.
func TestARolloutOfANewerProgram(t *testing.T) {
	for name, c := range map[string]struct {
		status v1alpha1.DaemonSetRolloutStatus
		policy bool
		waits  bool
		unread bool
	}{
		"under a policy":           {v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "a"}, true, true, false},
		"with nothing known":       {v1alpha1.DaemonSetRolloutStatus{}, true, true, true},
		"in the middle of one":     {v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "b", Phase: v1alpha1.PhaseSoaking}, false, true, false},
		"complete, with no policy": {v1alpha1.DaemonSetRolloutStatus{StableRevision: "a", TargetRevision: "a", Phase: v1alpha1.PhaseComplete}, false, false, false},
	} {
		w := newWorld()
		if c.policy {
			w.policy(t, "first", "")
		}
		r := w.rollout("logs", "u1", c.status, v1alpha1.DaemonSetRolloutSpec{})
		w.daemonSet("logs", "u1")
		r = r.DeepCopy()
		w.mark(&r.ObjectMeta, "status.ghosts")
		w.Step(Rollout{Object: r})
		got, told := w.rows.told["u1"]
		if told != c.waits {
			t.Errorf("%s: it is told %t: %+v", name, told, got)
		}
		if c.waits && (got.Following != course.Lost || !got.Newer || got.Unread != c.unread || !strings.Contains(got.Why, "status.ghosts")) {
			t.Errorf("%s: it is told %+v", name, got)
		}
		for _, j := range w.Jobs() {
			if j.Policy == nil {
				t.Errorf("%s: the rollout is written or deleted: %+v", name, j)
			}
		}
	}
}

// What controllers remember in conditions stays: a rollout whose fields are given up goes on as it was.
func TestWhatIsRememberedOfARolloutOfANewerProgram(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for condition, stays := range map[string]bool{PolicyGone: true, DaemonSetGone: true, v1alpha1.RolloutComplete: false} {
		o, _, err := newer.ForStorage(scheme).Decode(fmt.Appendf(nil, `{"apiVersion":"everynode.io/v1alpha1",
"kind":"DaemonSetRollout","spec":{"quorum":1},"status":{"conditions":[{"type":%q,"status":"True"}]}}`, condition), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := o.(*v1alpha1.DaemonSetRollout)
		if newer.Fields(r) == "" || meta.IsStatusConditionTrue(r.Status.Conditions, condition) != stays {
			t.Errorf("%s: the conditions are %+v", condition, r.Status.Conditions)
		}
	}
}
