package admit

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

func TestDue(t *testing.T) {
	rolling, waits := heldAs("RollingUpdate", ""), heldAs("OnDelete", `{"type":"RollingUpdate"}`)
	consent := &v1alpha1.DaemonSetRollout{
		Spec: v1alpha1.DaemonSetRolloutSpec{Approved: &v1alpha1.StepApproval{Revision: "b", Digest: "d",
			Step: v1alpha1.WithoutPolicy}},
		Status: v1alpha1.DaemonSetRolloutStatus{TargetRevision: "b", TargetDigest: "d"},
	}
	forged := consent.DeepCopy()
	forged.Status.TargetDigest = "another"
	earlier := consent.DeepCopy()
	earlier.Spec.Approved.Change, earlier.Status.Change = 3, 4
	const x, y = ".aaaaaaaaaaaaaaaaaaaaaaaa", ".bbbbbbbbbbbbbbbbbbbbbbbb"
	reads := &v1alpha1.DaemonSetRollout{Status: v1alpha1.DaemonSetRolloutStatus{StableRevision: "b" + x, TargetRevision: "b" + y,
		TargetDigest: "d"}}
	consented := reads.DeepCopy()
	consented.Spec.Approved = &v1alpha1.StepApproval{Revision: "b" + y, Digest: "d", Step: v1alpha1.WithoutPolicy}
	stale := consented.DeepCopy()
	stale.Spec.Approved.Revision = "b" + x
	for _, c := range []struct {
		name  string
		stand Stand
		want  Move
		says  string
	}{
		{"selected", Stand{Set: rolling, Selected: true}, Take, ""},
		{"selected, and the annotation is there, but admission missed it",
			Stand{Set: heldAs("RollingUpdate", "x"), Selected: true}, Take, ""},
		{"taken", Stand{Set: waits, Selected: true}, Stay, ""},
		{"the author's own", Stand{Set: heldAs("OnDelete", "")}, Stay, ""},
		{"of nobody's interest", Stand{Set: rolling}, Stay, ""},
		{"the policy went", Stand{Set: waits, Newest: "b", Pods: map[string]int{"b": 3}}, Return, ""},
		{"the policy went before the revision was seen", Stand{Set: waits, Pods: map[string]int{"b": 3}}, Hold, "not known"},
		{"the policy went in the middle", Stand{Set: waits, Newest: "b", Pods: map[string]int{"b": 1, "a": 2}}, Hold,
			"2 nodes have a"},
		{"somebody consents", Stand{Set: waits, Newest: "b", Pods: map[string]int{"a": 2}, Rollout: consent}, Return, ""},
		{"a consent to another template of the name", Stand{Set: waits, Newest: "b", Pods: map[string]int{"a": 2},
			Rollout: forged}, Hold, "a"},
		{"consent to a change before", Stand{Set: waits, Newest: "b", Pods: map[string]int{"a": 2},
			Rollout: earlier}, Hold, "a"},
		{"the policy went in the middle of an edit", Stand{Set: waits, Newest: "b", Pods: map[string]int{"b" + x: 2, "b" + y: 1},
			Rollout: reads}, Hold, "2 nodes have another content than b" + y},
		{"somebody consents to the content", Stand{Set: waits, Newest: "b", Pods: map[string]int{"b" + x: 2},
			Rollout: consented}, Return, ""},
		{"the policy went after an edit", Stand{Set: waits, Newest: "b", Pods: map[string]int{"b" + y: 3}, Rollout: reads}, Return, ""},
		{"a consent to another content", Stand{Set: waits, Newest: "b", Pods: map[string]int{"b" + x: 2},
			Rollout: stale}, Hold, "another content"},
		{"pods without content", Stand{Set: waits, Newest: "b", Pods: map[string]int{"b": 2, "b" + y: 1}, Rollout: reads}, Return, ""},
		{"another template besides", Stand{Set: waits, Newest: "b", Pods: map[string]int{"a" + x: 1, "a": 1, "b" + x: 1},
			Rollout: reads}, Hold, "2 nodes have a: "},
	} {
		got, why := Due(c.stand)
		if got != c.want || !strings.Contains(why, c.says) || (why == "") != (c.says == "") {
			t.Errorf("%s: %v %q", c.name, got, why)
		}
	}
}

// stored is a DaemonSet of a strategy, with one that is kept beside it.
func heldAs(kind, kept string) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "d"}}
	ds.Spec.UpdateStrategy.Type = appsv1.DaemonSetUpdateStrategyType(kind)
	if kept != "" {
		ds.Annotations = map[string]string{UpdateStrategy: kept}
	}
	return ds
}

func TestOnlyOurOwnWriteGivesBack(t *testing.T) {
	w := DaemonSetWrite{Old: heldAs("OnDelete", `{"type":"RollingUpdate"}`), New: heldAs("OnDelete", ""),
		Standing: Follows, Returns: true}
	if got := string(DaemonSet(w).Patch); !strings.Contains(got, `"type":"RollingUpdate"`) {
		t.Errorf("our own write gives %s", got)
	}
	w.Returns = false
	if got := DaemonSet(w); got.Patch != nil {
		t.Errorf("another's gives %s", got.Patch)
	}
}

func TestAsWritten(t *testing.T) {
	surge := heldAs("OnDelete", `{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":0,"maxSurge":1}}`)
	got := AsWritten(surge)
	if s := got.Spec.UpdateStrategy; s.Type != "RollingUpdate" || s.RollingUpdate.MaxSurge != nil || !Taken(got) {
		t.Errorf("it is %+v", got)
	}
	if missed := AsWritten(heldAs("RollingUpdate", `{"type":"RollingUpdate"}`)); Taken(missed) {
		t.Error("one that admission did not see counts as taken")
	}
	if own := heldAs("OnDelete", ""); AsWritten(own) != own {
		t.Error("the author's own OnDelete is another")
	}
}
