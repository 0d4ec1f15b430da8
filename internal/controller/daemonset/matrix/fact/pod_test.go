package fact

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant/resizing"
	"github.com/everynode/everynode/internal/objects/pod"
)

// A pod on its way out tells that it was ready when that was asked for, if it surely was.
func TestWasReady(t *testing.T) {
	asked := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		ready   corev1.ConditionStatus
		changed time.Time
		want    bool
	}{
		"ready still":          {corev1.ConditionTrue, asked.Add(-time.Hour), true},
		"ready until it ended": {corev1.ConditionFalse, asked.Add(3 * time.Second), true},
		"ready until then":     {corev1.ConditionFalse, asked, true},
		"not ready before":     {corev1.ConditionFalse, asked.Add(-time.Second), false},
		"nobody knows":         {"", asked, false},
	} {
		ends, grace := metav1.NewTime(asked.Add(30*time.Second)), int64(30)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &ends, DeletionGracePeriodSeconds: &grace}}
		if test.ready != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: test.ready,
				LastTransitionTime: metav1.NewTime(test.changed)}}
		}
		if got := OfPod(p, "logs").WasReady; got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPlacementReason(t *testing.T) {
	for message, want := range map[string]string{
		"0/3 nodes are available: 1 Insufficient memory, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. " +
			"preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod.": "Insufficient memory",
		"0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 node(s) didn't satisfy plugin(s) [NodeAffinity].": "Insufficient cpu, Insufficient memory",
		"0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity].":                                            "node(s) didn't satisfy plugin(s) [NodeAffinity]",
		"0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.":                   "Insufficient cpu",
		"0/1 nodes are available: 1 node(s) had taint {a: b}, that the pod didn't tolerate.":                                     "node(s) had taint {a: b}, that the pod didn't tolerate",
		"the scheduler speaks another way": "the scheduler speaks another way",
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
				Message: message}}}}
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/gate"}}
		if got := OfPod(p, "logs").Gates; got != "example.com/gate" {
			t.Errorf("the pod's gates are %q", got)
		}
		p.Spec.SchedulingGates = nil
		if got := OfPod(p, "logs").Unplaceable; got != want {
			t.Errorf("%s\ngives %q, want %q", message, got, want)
		}
		p.Spec.NodeName = "n1"
		if got := OfPod(p, "logs").Unplaceable; got != "" {
			t.Errorf("a pod that is bound cannot be placed: %q", got)
		}
	}
}

// What a container did before the running pod was given other content or amounts is no evidence about these, and hides none.
func TestWhatCountsSinceAChangeOfARunningPod(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	state := func(s string) (out corev1.ContainerState) {
		if s == "running" {
			out.Running = &corev1.ContainerStateRunning{}
		} else {
			out.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: s}
		}
		return out
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{}, Labels: map[string]string{}}}
	was := []corev1.ContainerStatus{{Name: "a", State: state("running"), LastTerminationState: state("OOMKilled"), RestartCount: 6},
		{Name: "b", State: state("running")}}
	p.Status.ContainerStatuses = was
	const id = "abcdefghijklmnopqrstuvwx"
	by := pod.RestartsBy(p)
	pointed := content.Pointing{Content: id, At: at, Restarts: 6, RestartsBy: by}
	resized := resizing.Record{Pod: "p", At: at, Restarts: 6, RestartsBy: by}
	old := resizing.Record{Pod: "p", At: at, Restarts: 6}
	text := func(value string, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	for name, c := range map[string]struct {
		label, annotation, value string
		restarts                 int32
		cause                    pod.Cause
	}{
		"pointed":                 {"t." + id, content.LiveName, text(pointed.Text()), 3, ""},
		"resized":                 {"t", resizing.Annotation, text(resized.Text()), 3, ""},
		"by a version before":     {"t", resizing.Annotation, text(old.Text()), 0, pod.OutOfMemory},
		"as it was made":          {"t", "other", "", 6, pod.OutOfMemory},
		"resized, and never died": {"t", resizing.Annotation, text((&resizing.Record{Pod: "p", At: at}).Text()), 6, pod.OutOfMemory},
	} {
		p.Annotations = map[string]string{c.annotation: c.value}
		p.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: "t", content.RevisionLabel: c.label}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{was[0], was[1]}
		p.Status.ContainerStatuses[1].RestartCount = 3
		i := OfPod(p, "logs")
		i.Point(p)
		i.Resize(p)
		if i.Restarts != c.restarts || i.Cause != c.cause || i.Certain != (c.cause != "") || (c.cause == "") != (i.Trouble == "") {
			t.Errorf("%s: %d restarts, %q by %q, want %d by %q", name, i.Restarts, i.Trouble, i.Cause, c.restarts, c.cause)
		}
	}
}
