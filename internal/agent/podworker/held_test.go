package podworker

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// A pod that is held says so in a condition, since when, and no more once it is let go. Other words are no other time.
func TestHeldPodSaysSo(t *testing.T) {
	pod := &corev1.Pod{}
	var s corev1.PodStatus
	for i, held := range []string{"for cni", "for log", ""} {
		s = Status(Input{Pod: pod, Memory: &Memory{}, Now: time.Unix(int64(i+1), 0), Held: held}, &s, nil)
		pod.Status = s
		is := findCondition(s.Conditions, nodestartup.WaitsCondition)
		switch {
		case nodestartup.WaitsFor(pod) != held, held == "" && is != nil:
			t.Errorf("%q: it says %+v", held, is)
		case held != "" && (is.Status != corev1.ConditionTrue || is.LastTransitionTime.Unix() != 1):
			t.Errorf("%q: it says %+v, since %v", held, is, is.LastTransitionTime)
		}
	}
}
