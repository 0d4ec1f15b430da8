package timeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/api/v1alpha1"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(minutes float64) metav1.Time {
	return metav1.NewTime(begin.Add(time.Duration(minutes * float64(time.Minute))))
}

func event(minutes float64, reason, message string) corev1.Event {
	return corev1.Event{Reason: reason, Message: message, Count: 1, FirstTimestamp: at(minutes), LastTimestamp: at(minutes)}
}

func revision(number int64, hash string, minutes float64) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Name: "agent-" + hash, CreationTimestamp: at(minutes), Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: hash},
	}, Revision: number}
}

func wrote(manager, subresource, raw string, minutes float64) metav1.ManagedFieldsEntry {
	when := at(minutes)
	return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: &when, FieldsV1: metav1.NewFieldsV1(raw)}
}

// lines writes moments as a test reads them.
func lines(moments []Moment) string {
	var b strings.Builder
	for _, m := range moments {
		fmt.Fprintf(&b, "%s %s (%s) %ds: %s\n", m.At.Format("15:04"), m.What, m.Tone, m.Seconds, m.Detail)
	}
	return b.String()
}

func halted() Input {
	step := at(2)
	return Input{
		Now: at(30).Time,
		DaemonSet: &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", ManagedFields: []metav1.ManagedFieldsEntry{
			wrote("kubectl-set", "", `{"f:spec":{"f:template":{}}}`, 1),
			wrote("everynode-daemonset-controller", "status", `{"f:status":{"f:template":{}}}`, 29),
			wrote("kubectl-label", "", `{"f:metadata":{}}`, 28),
		}}},
		Rollout: &v1alpha1.DaemonSetRollout{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{wrote("everynode-rollout", "", `{"f:spec":{"f:approved":{}}}`, 10)}},
			Status: v1alpha1.DaemonSetRolloutStatus{
				Step: "canary", StepStarted: &step,
				FailedRevisions: []v1alpha1.FailedRevision{{Revision: "bbb", Why: "failed on 2 nodes", Time: at(12)}},
				Conditions:      []metav1.Condition{{Type: v1alpha1.RolloutFailed, Status: metav1.ConditionTrue, LastTransitionTime: at(12)}},
			},
		},
		Revisions: []*appsv1.ControllerRevision{revision(2, "bbb", 1), revision(1, "aaa", 0)},
	}
}

// TestWhileEventsAreKept tells each thing once, in order, with what it took.
func TestWhileEventsAreKept(t *testing.T) {
	in := halted()
	in.Events = []corev1.Event{
		event(12, "RolloutHalted", "revision bbb failed on 2 nodes"),
		event(1, "RolloutStarted", "revision bbb is on its way"),
		event(2, "RolloutStepOpened", "step canary has begun: 3 nodes"),
		event(3, "RolloutWaitsForApproval", "step canary is complete"),
		event(4, "SuccessfulCreate", "created a pod"),
	}
	const want = `12:00 A revision is made () 60s: revision 1 (aaa)
12:01 Somebody wrote () 0s: kubectl-set wrote the template last
12:01 A revision is made () 0s: revision 2 (bbb)
12:01 The change begins () 60s: revision bbb is on its way
12:02 A step begins () 60s: step canary has begun: 3 nodes
12:03 It waits for approval (warn) 420s: step canary is complete
12:10 Somebody wrote () 120s: everynode-rollout wrote what is wanted of the rollout last
12:12 It is halted (bad) 1080s: revision bbb failed on 2 nodes
`
	if got := lines(Of(in)); got != want {
		t.Errorf("it tells\n%s\nwant\n%s", got, want)
	}
}

// TestAfterEventsAreGone the objects still tell of the step and the failure.
func TestAfterEventsAreGone(t *testing.T) {
	got := lines(Of(halted()))
	for _, want := range []string{"12:02 A step begins () 480s: step canary has begun", "12:12 A revision fails (bad) 1080s: revision 2 (bbb) failed on 2 nodes"} {
		if !strings.Contains(got, want) {
			t.Errorf("it tells\n%s\nwithout %q", got, want)
		}
	}
}

// TestManyMoments are cut to the newest, and an event that came often is two moments.
func TestManyMoments(t *testing.T) {
	in := Input{Now: at(2000).Time, DaemonSet: &appsv1.DaemonSet{}}
	for i := range 500 {
		in.Events = append(in.Events, event(float64(i), "RolloutPaused", fmt.Sprint(i)))
	}
	often := event(1000, "RolloutPaused", "again")
	often.FirstTimestamp, often.Count = at(900), 5
	in.Events = append(in.Events, often)
	got := Of(in)
	if len(got) != Most || got[Most-1].Detail != "again" || got[Most-2].Detail != "again" || got[Most-3].Detail != "499" {
		t.Errorf("%d moments, the last ones %+v", len(got), got[len(got)-3:])
	}
	if first := got[Most-2]; first.Seconds != 6000 {
		t.Errorf("the first of them took %d s, want until the last", first.Seconds)
	}
}
