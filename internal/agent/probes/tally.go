package probes

import corev1 "k8s.io/api/core/v1"

// kind is one of the three kinds of probes; its text begins messages.
type kind string

const (
	startup   kind = "Startup"
	liveness  kind = "Liveness"
	readiness kind = "Readiness"
)

// tally counts a probe's outcomes. verdict changes when enough outcomes of one sort have come in a row.
type tally struct {
	verdict bool // the probe counts as succeeding
	decided bool // some outcomes in a row have reached their threshold
	last    bool
	run     int32 // how many outcomes like last in a row
}

// newTally is a probe before its first outcome: liveness counts as succeeding, the others not.
func newTally(k kind) tally { return tally{verdict: k == liveness} }

// next adds one outcome; changed is true when verdict changed or was decided for the first time.
func (t tally) next(success bool, probe *corev1.Probe) (after tally, changed bool) {
	if t.run == 0 || t.last != success {
		t.run = 0
		t.last = success
	}
	if t.run < 1<<30 {
		t.run++
	}
	threshold := atLeastOne(probe.SuccessThreshold, 1)
	if !success {
		threshold = atLeastOne(probe.FailureThreshold, 3)
	}
	if t.run < threshold {
		return t, false
	}
	changed = t.verdict != success || !t.decided
	t.verdict, t.decided = success, true
	return t, changed
}

// atLeastOne is n, or the default where n is not set.
func atLeastOne(n, fallback int32) int32 {
	if n < 1 {
		return fallback
	}
	return n
}
