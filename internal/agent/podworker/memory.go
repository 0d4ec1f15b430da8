package podworker

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Limits of the waits between tries.
const (
	// backOffInitial and backOffMax bound the wait before a crashed container starts again and before a failed pull
	// is tried again; it doubles each time.
	backOffInitial = 10 * time.Second
	backOffMax     = 5 * time.Minute
	// backOffReset is how long a container must have run for its back-off to be forgotten.
	backOffReset = 2 * backOffMax
	// retryInitial and retryMax bound the wait before anything else that failed is tried again.
	retryInitial = time.Second
	retryMax     = 10 * time.Second
	// pullErrorShown is how long a failed pull is shown as such before it is shown as a back-off.
	pullErrorShown = 2 * time.Second
)

// Memory is what a worker knows beyond the API and the runtime: what is under way, and what failed when. The zero value
// is a worker that has just started. It is not safe for concurrent use.
type Memory struct {
	serialRunning    int
	setUp            ActionKind // the step towards a container that is under way; 0 for none
	volumesReady     bool
	volumesTried     bool
	volumesDown      bool
	finished         bool
	forgotten        bool
	volumes          retry
	sandbox          retry
	clearing         retry
	stoppedSandbox   []string
	containers       []containerMemory
	kills            []killMemory
	rejected         Rejection
	terminated       Termination
	recalled         ending
	discarded        bool
	terminatingSince time.Time
	sizes            sizes
}

// Rejection is why a node does not run a pod: it fails with this reason and message.
type Rejection struct{ Reason, Message string }

// Reject makes the pod fail without running.
func (m *Memory) Reject(r Rejection) { m.rejected = r }

// Termination is why and how a node ends a pod that nobody deleted: because it needs the room, or shuts down. The pod
// fails with this reason and message, once its containers have ended.
type Termination struct {
	Reason, Message string
	// Grace is how long the containers have to stop at most, in seconds.
	Grace int64
}

// Terminate ends a pod that did not end yet. The first call says why, and the shortest grace counts.
func (m *Memory) Terminate(t Termination) {
	if !m.ToEnd() {
		m.terminated = t
	}
	m.terminated.Grace = min(m.terminated.Grace, t.Grace)
}

// ToEnd says that Terminate was called.
func (m *Memory) ToEnd() bool { return m.terminated.Reason != "" }

// Recall says how the pod ended, if it did: as was reported, in this run of the agent or in an earlier one. Then it has
// ended for good, though the API may not know and what it left may be gone.
func (m *Memory) Recall(s *corev1.PodStatus) {
	if ended(s) {
		m.recalled = ending{s.Phase, s.Reason, s.Message}
	}
}

// Ended reports whether Recall was told that the pod ended.
func (m *Memory) Ended() bool { return m.recalled.phase != "" }

// Discard says that what a pod that ended left in the runtime, dead containers and their logs, is to go: the room is
// needed.
func (m *Memory) Discard() { m.discarded = true }

// Rejected says that Reject was called.
func (m *Memory) Rejected() bool { return m.rejected.Reason != "" }

// Finished says that the pod left the node and its API object was asked to go.
func (m *Memory) Finished() bool { return m.finished }

// Forgotten says that the worker has ended.
func (m *Memory) Forgotten() bool { return m.forgotten }

// Busy says that a serial action is under way.
func (m *Memory) Busy() bool { return m.serialRunning > 0 }

type retry struct {
	delay   time.Duration
	at      time.Time
	message string
}

func (r *retry) fail(message string, now time.Time) {
	r.delay = min(max(2*r.delay, retryInitial), retryMax)
	r.at, r.message = now.Add(r.delay), message
}

// containerMemory is what is remembered of one container name.
type containerMemory struct {
	name string
	// starting says that a start is under way.
	starting bool
	// image is the one that was made present for the start that comes next; empty for none. Failing is the one whose pull
	// failed last.
	image, failing string
	// waiting is why the last try did not get the container running; empty after a success.
	waiting Outcome
	retry   retry
	pull    backOff
	restart backOff
	// toldPull and toldRestart say that the user was told of the present back-off.
	toldPull, toldRestart bool
}

// backOff is a doubling wait. The zero value lets the first try through at once.
type backOff struct {
	delay   time.Duration
	updated time.Time
}

// until returns the end of the wait that began at event, at now; zero for no wait. Where a clock that was set
// back says that the event is yet to come, the wait begins with this worker's last try instead, so that it ends.
func (b *backOff) until(event, now time.Time) time.Time {
	if b.delay == 0 || event.Sub(b.updated) > backOffReset {
		return time.Time{}
	}
	for _, began := range []time.Time{event, b.updated} {
		if began.Sub(now) <= b.delay {
			return began.Add(b.delay)
		}
	}
	return time.Time{}
}

// next lengthens the wait for whatever comes after a try made now because of event.
func (b *backOff) next(event, now time.Time) {
	if b.delay == 0 || event.Sub(b.updated) > backOffReset {
		b.delay = backOffInitial
	} else {
		b.delay = min(2*b.delay, backOffMax)
	}
	b.updated = now
}

type killMemory struct {
	id string
	// running counts the calls under way; by is the soonest time by which one of them ends the container.
	running int
	by      time.Time
	retry   retry
}

func (m *Memory) find(name string) *containerMemory {
	for i := range m.containers {
		if m.containers[i].name == name {
			return &m.containers[i]
		}
	}
	return nil
}

func (m *Memory) container(name string) *containerMemory {
	if c := m.find(name); c != nil {
		return c
	}
	m.containers = append(m.containers, containerMemory{name: name})
	return &m.containers[len(m.containers)-1]
}

func (m *Memory) kill(id string) *killMemory {
	for i := range m.kills {
		if m.kills[i].id == id {
			return &m.kills[i]
		}
	}
	return nil
}

func (m *Memory) stopped(sandboxID string) bool {
	for _, id := range m.stoppedSandbox {
		if id == sandboxID {
			return true
		}
	}
	return false
}

// Begin records that the action was begun at now. Call it before the next Decide.
func (m *Memory) Begin(a Action, now time.Time) {
	if a.Kind.serial() {
		m.serialRunning++
		m.setUp = 0
		if slices.Contains([]ActionKind{SetUpVolumes, CreateSandbox, PullImage, StartContainer}, a.Kind) {
			m.setUp = a.Kind
		}
	}
	switch a.Kind {
	case StartContainer:
		c := m.container(a.Container)
		c.image, c.starting = "", true
		if a.again {
			c.restart = backOff{}
		}
		if a.restarts() {
			c.restart.next(a.lastExit, now)
		}
		c.toldRestart = false
	case KillContainer:
		m.pruneKills(now)
		k := m.kill(a.ContainerID)
		if k == nil {
			m.kills = append(m.kills, killMemory{id: a.ContainerID})
			k = &m.kills[len(m.kills)-1]
		}
		k.running++
		k.by = now.Add(time.Duration(a.Grace) * time.Second)
		if a.Reason == KillPodDeleted && m.terminatingSince.IsZero() {
			m.terminatingSince = now
		}
	case Announce:
		c := m.container(a.Container)
		if a.Reason == ReasonCrashLoopBackOff {
			c.toldRestart = true
		} else {
			c.toldPull = true
		}
	}
}

// Done records how an action that was begun ended at now.
func (m *Memory) Done(a Action, o Outcome, now time.Time) {
	if a.Kind.serial() {
		m.serialRunning--
		m.setUp = 0
	}
	switch a.Kind {
	case SetUpVolumes:
		m.volumesReady, m.volumesTried, m.volumesDown = !o.Failed(), true, false
		settle(&m.volumes, o, now)
	case CreateSandbox:
		m.created(a, o, now)
	case PullImage:
		m.container(a.Container).pulled(a.image, o, now)
	case WidenPod, ResizeContainer, NarrowPod:
		m.sizes.done(a, o, now)
	case StartContainer:
		c := m.container(a.Container)
		c.waiting, c.starting = o, false
		settle(&c.retry, o, now)
	case KillContainer:
		m.killed(a, o, now)
	case StopSandbox:
		settle(&m.clearing, o, now)
		if !o.Failed() {
			m.stoppedSandbox = append(m.stoppedSandbox, a.SandboxID)
		}
	case RemoveContainer, RemoveSandbox:
		settle(&m.clearing, o, now)
	case TearDownVolumes:
		settle(&m.clearing, o, now)
		m.volumesDown = !o.Failed()
		if m.volumesDown {
			m.volumesReady, m.volumesTried = false, false
		}
	case Finish:
		settle(&m.clearing, o, now)
		m.finished = !o.Failed()
	case Forget:
		settle(&m.clearing, o, now)
		m.forgotten = !o.Failed()
	}
}

func (m *Memory) created(a Action, o Outcome, now time.Time) {
	settle(&m.sandbox, o, now)
	if !o.Failed() {
		m.sizes.made(a.wanted)
		// A sandbox that is of no use must not be replaced without a pause, again and again.
		m.sandbox.at = now.Add(retryInitial)
	}
}

func settle(r *retry, o Outcome, now time.Time) {
	if !o.Failed() {
		*r = retry{}
		return
	}
	r.fail(o.Message, now)
}

func (c *containerMemory) pulled(image string, o Outcome, now time.Time) {
	c.toldPull = false
	if c.failing != image {
		c.pull = backOff{}
	}
	c.failing = image
	switch {
	case !o.Failed():
		c.pull, c.image, c.failing = backOff{}, image, ""
		// A start that failed before is still the latest that is known of the container, and what lengthens the wait for the
		// next one; a pull that failed is not.
		if pullReason(c.waiting.Reason) {
			c.waiting, c.retry = Outcome{}, retry{}
		}
	case o.Reason == ReasonErrImagePull:
		c.waiting = o
		c.pull.next(now, now)
	default:
		c.waiting = o
		c.retry.fail(o.Message, now)
	}
}

func pullReason(reason string) bool {
	switch reason {
	case ReasonErrImagePull, ReasonErrImageNeverPull, ReasonInvalidImageName, ReasonImageInspectError:
		return true
	}
	return false
}

func (m *Memory) killed(a Action, o Outcome, now time.Time) {
	k := m.kill(a.ContainerID)
	if k == nil {
		return
	}
	k.running--
	settle(&k.retry, o, now)
	if !o.Failed() {
		// The runtime may take a moment to see that the container is dead.
		k.retry = retry{delay: retryInitial, at: now.Add(retryInitial)}
	}
}

// pruneKills drops what is remembered of kills that ended a while ago.
func (m *Memory) pruneKills(now time.Time) {
	m.kills = slices.DeleteFunc(m.kills, func(k killMemory) bool {
		return k.running == 0 && now.After(k.retry.at.Add(retryMax))
	})
}
