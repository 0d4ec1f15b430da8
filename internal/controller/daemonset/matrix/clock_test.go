package matrix

import (
	"testing"
	"time"
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
