package probes

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestTally writes outcomes as + and -, and after each the verdict: U up, D down, with a ! where it changed.
func TestTally(t *testing.T) {
	tests := []struct {
		kind             kind
		success, failure int32
		outcomes         string
		want             string
	}{
		{readiness, 1, 3, "+", "U!"},
		{readiness, 1, 3, "-+", "D U!"},
		{readiness, 1, 3, "---+", "D D D! U!"},
		{readiness, 1, 3, "+--+---", "U! U U U U U D!"},
		{readiness, 1, 3, "+----", "U! U U D! D"},
		{readiness, 3, 1, "++-+++-", "D D D! D D U! D!"},
		{readiness, 0, 0, "+---", "U! U U D!"},
		{liveness, 1, 3, "--", "U U"},
		{liveness, 1, 3, "---", "U U D!"},
		{liveness, 1, 3, "--+--", "U U U! U U"},
		{liveness, 1, 1, "-", "D!"},
		{startup, 1, 2, "-+", "D U!"},
		{startup, 1, 2, "--", "D D!"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%s %d %d %s", test.kind, test.success, test.failure, test.outcomes), func(t *testing.T) {
			probe := &corev1.Probe{SuccessThreshold: test.success, FailureThreshold: test.failure}
			count := newTally(test.kind)
			var got []string
			for _, outcome := range test.outcomes {
				var changed bool
				count, changed = count.next(outcome == '+', probe)
				word := map[bool]string{true: "U", false: "D"}[count.verdict]
				if changed {
					word += "!"
				}
				got = append(got, word)
			}
			if line := strings.Join(got, " "); line != test.want {
				t.Errorf("verdicts %s, want %s", line, test.want)
			}
		})
	}
}
