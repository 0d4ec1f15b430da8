package probes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// run runs one probe until ctx ends or the probe is of no more use.
func (t *target) run(ctx context.Context, k kind, probe *corev1.Probe) {
	if k != startup {
		select {
		case <-ctx.Done():
			return
		case <-t.started:
		}
	}
	clock := t.manager.cfg.Clock
	period := time.Duration(atLeastOne(probe.PeriodSeconds, 10)) * time.Second
	// The initial delay counts from the container's start, which may be long ago.
	due := t.startedAt.Add(time.Duration(probe.InitialDelaySeconds) * time.Second)
	if now := clock.Now(); due.Before(now) {
		due = now
	}
	pause := due.Sub(clock.Now()) + t.manager.spread(period)
	count := newTally(k)
	if k == readiness {
		count.verdict = t.ready()
	}
	for {
		timer := clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		begun := clock.Now()
		success, ok := t.aside(func() (success, ok bool) { return t.probeOnce(ctx, k, probe) })
		if ctx.Err() != nil {
			return
		}
		if ok {
			var changed bool
			if count, changed = count.next(success, probe); changed && t.settle(k, probe, count.verdict) {
				return
			}
		}
		// The period counts from one begin to the next; a check that took longer is followed by the next at once.
		pause = max(period-clock.Since(begun), 0)
	}
}

// aside does a check in a goroutine of its own: it needs a large stack, for a moment, which one that waits for the next
// check would keep.
func (t *target) aside(check func() (success, ok bool)) (success, ok bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		success, ok = check()
	}()
	<-done
	return success, ok
}

// probeOnce checks once and tells about failures; ok is false when the check itself could not be made.
func (t *target) probeOnce(ctx context.Context, k kind, probe *corev1.Probe) (success, ok bool) {
	clock := t.manager.cfg.Clock
	begun := clock.Now()
	result, err := t.manager.check.do(ctx, t, probe)
	if ctx.Err() != nil {
		return false, false
	}
	t.tell(k, result, err, clock.Since(begun))
	switch {
	case err != nil:
		t.event("Unhealthy", fmt.Sprintf("%s probe errored and resulted in unknown state: %v", k, err))
		return false, false
	case result.warning:
		t.event("ProbeWarning", fmt.Sprintf("%s probe warning: %s", k, result.output))
	case !result.success:
		t.event("Unhealthy", fmt.Sprintf("%s probe failed: %s", k, result.output))
	}
	return result.success, true
}

// settle puts a verdict into the container's state; done is true when this probe has no more to say.
func (t *target) settle(k kind, probe *corev1.Probe, success bool) (done bool) {
	t.mu.Lock()
	before := t.state
	switch {
	case k == readiness:
		t.state.Ready = success && t.state.Started && !t.state.LivenessFailed
	case success && k == startup:
		t.state.Started = true
		t.state.Ready = t.container.ReadinessProbe == nil
		close(t.started)
		done = true
	case !success:
		t.state.LivenessFailed = true
		t.state.TerminationGracePeriodSeconds = probe.TerminationGracePeriodSeconds
		t.state.Message = fmt.Sprintf("Container %s failed liveness probe, will be restarted", t.container.Name)
		if k == startup {
			t.state.Message = fmt.Sprintf("Container %s failed startup probe, will be restarted", t.container.Name)
		}
		done = true
	}
	changed := before != t.state
	t.mu.Unlock()
	if changed && t.manager.cfg.OnChange != nil {
		t.manager.cfg.OnChange(t.pod.UID)
	}
	return done
}

// tell says how a probe ended.
func (t *target) tell(k kind, result outcome, err error, took time.Duration) {
	if t.manager.cfg.OnProbe == nil {
		return
	}
	word := "failed"
	switch {
	case err != nil:
		word = "unknown"
	case result.success:
		word = "successful"
	}
	t.manager.cfg.OnProbe(t.pod, t.container.Name, string(k), word, took)
}

func (t *target) ready() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state.Ready
}

func (t *target) event(reason, message string) {
	if t.manager.cfg.OnEvent != nil {
		t.manager.cfg.OnEvent(t.pod, t.container.Name, corev1.EventTypeWarning, reason, message)
	}
}
