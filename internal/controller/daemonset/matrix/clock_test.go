package matrix

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/controller/daemonset/course"
)

// A node whose clock is behind says that its pod is ready since before it was made. That
// must not shorten what the pod has to be ready for, or a soak.
func TestClockBehindDoesNotAge(t *testing.T) {
	made := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := made.Add(5 * time.Second)
	p := &trackedPod{}
	p.update(PodInfo{UID: "pod", Bound: true, Created: made}, made)
	p.update(PodInfo{UID: "pod", Bound: true, Created: made, Ready: true, ReadySince: made.Add(-time.Hour)}, now)
	if at, ok := p.availableAt(60); !ok || at.Before(made.Add(time.Minute)) {
		t.Errorf("with minReadySeconds of 60 a pod of %v is available from %v on", made, at)
	}
	if since := p.since(0); since.Before(made) {
		t.Errorf("a pod that was made at %v soaks since %v", made, since)
	}
}

// What a pod replaced is written on it when it is made. Who writes that on one that is there
// already excuses nothing by it.
func TestWhatAPodReplacedIsReadOnce(t *testing.T) {
	w := newWorld(Config{})
	w.setNode(NodeInfo{Name: "n1"})
	w.setDaemonSet(DaemonSetInfo{UID: "logs", Namespace: "default", Name: "logs", Generation: 1, Revision: "a", Strategy: rollingUpdate("1", "0")}, corev1.PodSpec{})
	p := PodInfo{UID: "p1", Name: "p1", Owner: "logs", Node: "n1", Revision: "a", Bound: true, Created: noon}
	w.m.Step(p)
	p.Before = course.WasNotAvailable
	w.m.Step(p)
	if got := w.m.pods["p1"].info.Before; got != "" {
		t.Errorf("it replaced one that was %s", got)
	}
}

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
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: test.ready, LastTransitionTime: metav1.NewTime(test.changed)}}
		}
		if got := ProjectPod(p, "logs").WasReady; got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
