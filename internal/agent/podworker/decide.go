package podworker

import (
	"fmt"
	"slices"
	"time"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Why a container is killed.
const (
	KillPodDeleted     = "PodDeleted"
	KillPodFinished    = "PodFinished"
	KillSandboxGone    = "SandboxGone"
	KillProbeFailed    = "ProbeFailed"
	KillSpecChanged    = "SpecChanged"
	KillNotInSpec      = "NotInSpec"
	KillDuplicate      = "Duplicate"
	KillUnknownState   = "UnknownState"
	KillResized        = "Resized"
	defaultGraceSecond = 30
)

// Decide returns what to do now for the pod, and when to decide again. It reads in and changes nothing.
func Decide(in Input) Plan {
	d := decider{in: &in, mem: in.Memory}
	switch {
	case in.Runtime == nil || in.Memory.forgotten:
	case in.terminating():
		d.terminate()
	default:
		if _, done := verdict(&in); done {
			d.finish()
		} else {
			d.run()
		}
	}
	return d.plan
}

type decider struct {
	in   *Input
	mem  *Memory
	plan Plan
}

func (d *decider) act(a Action) { d.plan.Actions = append(d.plan.Actions, a) }

// waiting says whether r's next try is still to come, and if so arranges to decide again then.
func (d *decider) waiting(r *retry) bool { return d.before(r.at) }

func (d *decider) before(at time.Time) bool {
	if d.in.Now.Before(at) {
		d.plan.wake(at)
		return true
	}
	return false
}

// run brings a pod that should run closer to it.
func (d *decider) run() {
	if deadline, ok := activeDeadline(d.in); ok {
		d.plan.wake(deadline)
	}
	sandbox := d.in.Runtime.sandbox()
	usable := d.usable(sandbox)
	d.killStrays(sandbox, usable)
	switch {
	case d.mem.Busy():
	case !d.mem.volumesReady && !d.hadVolumes(sandbox, usable):
		d.setUpVolumes()
	case !usable:
		d.replaceSandbox(sandbox)
	default:
		if d.resize() && d.ephemeralContainers() && d.initContainers(sandbox) && d.appContainers() {
			d.clearDead(sandbox)
		}
		if !d.mem.volumesReady && !d.begins() {
			d.setUpVolumes()
		}
	}
}

// begins reports whether the plan has a serial action.
func (d *decider) begins() bool {
	return slices.ContainsFunc(d.plan.Actions, func(a Action) bool { return a.Kind.serial() })
}

func (d *decider) setUpVolumes() {
	if !d.waiting(&d.mem.volumes) {
		d.act(Action{Kind: SetUpVolumes})
	}
}

// hadVolumes reports whether an earlier run of the agent set up all volumes of the sandbox that is there: it made
// containers in it. What this run could not set up then holds up only the containers that it cannot do without.
func (d *decider) hadVolumes(s *Sandbox, usable bool) bool {
	return d.mem.volumesTried && usable &&
		slices.ContainsFunc(d.in.Runtime.Containers, func(c Container) bool { return c.SandboxID == s.ID })
}

// usable says whether containers can be started in the sandbox.
func (d *decider) usable(s *Sandbox) bool {
	if s == nil || !s.Ready || s.HostNetwork != d.in.Pod.Spec.HostNetwork || d.mem.stopped(s.ID) {
		return false
	}
	return s.HostNetwork || len(s.IPs) > 0
}

func (d *decider) replaceSandbox(old *Sandbox) {
	if d.in.Runtime.anyAlive() || d.waiting(&d.mem.sandbox) {
		return
	}
	switch {
	case old == nil:
		d.act(Action{Kind: CreateSandbox, wanted: wantedSizes(d.in.Pod)})
	case !d.mem.stopped(old.ID):
		if !d.waiting(&d.mem.clearing) {
			d.act(Action{Kind: StopSandbox, SandboxID: old.ID, Reason: "SandboxChanged",
				Message: "Pod sandbox changed, it will be killed and re-created."})
		}
	default:
		d.act(Action{Kind: CreateSandbox, Attempt: old.Attempt + 1, wanted: wantedSizes(d.in.Pod)})
	}
}

// killStrays kills the running containers that should not run on, or not as they are.
func (d *decider) killStrays(sandbox *Sandbox, usable bool) {
	for i := range d.in.Runtime.Containers {
		c := &d.in.Runtime.Containers[i]
		if !c.alive() {
			continue
		}
		if reason, message := d.stray(c, sandbox, usable); reason != "" {
			d.kill(c, reason, message, d.graceFor(c, reason))
		}
	}
}

func (d *decider) stray(c *Container, sandbox *Sandbox, usable bool) (reason, message string) {
	spec, init := findContainer(d.in.Pod, c.Name)
	if spec == nil {
		spec = podfacts.Container(d.in.Pod, c.Name)
	}
	switch {
	case spec == nil:
		return KillNotInSpec, "Stopping container " + c.Name
	case c.State == Unknown:
		return KillUnknownState, fmt.Sprintf("Container %s is in unknown state, try killing it before restart", c.Name)
	case !usable || c.SandboxID != sandbox.ID:
		return KillSandboxGone, "Stopping container " + c.Name
	case d.in.Runtime.newest(c.Name) != c:
		return KillDuplicate, "Stopping container " + c.Name
	case specChanged(spec, c) && (!init || podfacts.IsSidecar(spec)):
		return KillSpecChanged, fmt.Sprintf("Container %s definition changed, will be restarted", c.Name)
	}
	if p := d.in.probe(c.Name, c.ID); p != nil && p.LivenessFailed {
		return KillProbeFailed, p.Message
	}
	return "", ""
}

// graceFor returns how long a container has to stop, in seconds.
func (d *decider) graceFor(c *Container, reason string) int64 {
	grace := int64(defaultGraceSecond)
	pod := d.in.Pod
	if pod == nil {
		if d.in.Runtime.GraceSeconds > 0 {
			grace = d.in.Runtime.GraceSeconds
		}
		return grace
	}
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = *pod.Spec.TerminationGracePeriodSeconds
	}
	if reason == KillProbeFailed {
		if p := d.in.probe(c.Name, c.ID); p != nil && p.TerminationGracePeriodSeconds != nil {
			grace = *p.TerminationGracePeriodSeconds
		}
	}
	if pod.DeletionGracePeriodSeconds != nil {
		grace = *pod.DeletionGracePeriodSeconds
	}
	if (reason == KillPodFinished || reason == KillPodDeleted) && d.mem.ToEnd() {
		grace = min(grace, d.mem.terminated.Grace)
	}
	return max(grace, 1)
}

// kill stops the container within grace seconds, unless a kill under way ends it about as soon.
func (d *decider) kill(c *Container, reason, message string, grace int64) {
	if k := d.mem.kill(c.ID); k != nil {
		if k.running == 0 && d.waiting(&k.retry) {
			return
		}
		if k.running > 0 && !d.in.Now.Add(time.Duration(grace)*time.Second).Before(k.by.Add(-time.Second)) {
			return
		}
	}
	d.act(Action{Kind: KillContainer, Container: c.Name, ContainerID: c.ID, SandboxID: c.SandboxID, Grace: grace,
		Reason: reason, Message: message})
}

// terminate takes the pod off the node.
func (d *decider) terminate() {
	d.plan.Abandon, d.plan.Ending = d.mem.setUp != 0, true
	if d.in.Runtime.anyAlive() {
		d.killAll(KillPodDeleted)
		return
	}
	if d.mem.Busy() || d.waiting(&d.mem.clearing) {
		return
	}
	if d.stopSandboxes() {
		return
	}
	switch {
	case d.removeAll():
	case !d.mem.volumesDown:
		d.act(Action{Kind: TearDownVolumes})
	case !d.in.Gone && d.in.Pod != nil:
		if !d.mem.finished {
			d.act(Action{Kind: Finish})
		}
	default:
		d.act(Action{Kind: Forget})
	}
}

// finish stops what is left of a pod that ran to its end, and keeps its dead containers.
func (d *decider) finish() {
	d.plan.Abandon, d.plan.Ending = d.mem.setUp != 0, true
	if d.in.Runtime.anyAlive() {
		d.killAll(KillPodFinished)
		return
	}
	if d.mem.Busy() || d.waiting(&d.mem.clearing) || d.stopSandboxes() {
		return
	}
	if !d.mem.volumesDown {
		d.act(Action{Kind: TearDownVolumes})
		return
	}
	if d.mem.discarded {
		d.removeAll()
		return
	}
	d.clearDead(d.in.Runtime.sandbox())
}

// killAll kills the containers: first all but the sidecars, together; then the sidecars, the last one first.
func (d *decider) killAll(reason string) {
	var lastSidecar *Container
	lastIndex, others := -1, false
	for i := range d.in.Runtime.Containers {
		c := &d.in.Runtime.Containers[i]
		if !c.alive() {
			continue
		}
		if index := sidecarIndex(d.in.Pod, c.Name); index >= 0 {
			if index > lastIndex {
				lastSidecar, lastIndex = c, index
			}
			continue
		}
		others = true
		d.kill(c, reason, "Stopping container "+c.Name, d.graceLeft(c, reason))
	}
	if !others && lastSidecar != nil {
		d.kill(lastSidecar, reason, "Stopping container "+lastSidecar.Name, d.graceLeft(lastSidecar, reason))
	}
}

// graceLeft is the grace period, less what sidecars already waited for the containers stopped before them.
func (d *decider) graceLeft(c *Container, reason string) int64 {
	grace := d.graceFor(c, reason)
	if since := d.mem.terminatingSince; !since.IsZero() && sidecarIndex(d.in.Pod, c.Name) >= 0 {
		grace -= int64(d.in.Now.Sub(since) / time.Second)
	}
	return max(grace, 1)
}

func (d *decider) stopSandboxes() (acted bool) {
	for i := range d.in.Runtime.Sandboxes {
		if s := &d.in.Runtime.Sandboxes[i]; !d.mem.stopped(s.ID) {
			d.act(Action{Kind: StopSandbox, SandboxID: s.ID})
			return true
		}
	}
	return false
}

func (d *decider) removeAll() (acted bool) {
	for i := range d.in.Runtime.Containers {
		c := &d.in.Runtime.Containers[i]
		d.act(Action{Kind: RemoveContainer, Container: c.Name, ContainerID: c.ID})
	}
	for i := range d.in.Runtime.Sandboxes {
		d.act(Action{Kind: RemoveSandbox, SandboxID: d.in.Runtime.Sandboxes[i].ID})
	}
	return len(d.plan.Actions) > 0
}

// clearDead removes all dead containers but the newest of each name, and the empty sandboxes that were replaced.
func (d *decider) clearDead(current *Sandbox) {
	if d.waiting(&d.mem.clearing) {
		return
	}
	rt := d.in.Runtime
	for i := range rt.Containers {
		c := &rt.Containers[i]
		if !c.alive() && c != rt.lastExited(c.Name, nil) && c != rt.newest(c.Name) {
			d.act(Action{Kind: RemoveContainer, Container: c.Name, ContainerID: c.ID, Reason: "Superseded"})
		}
	}
	for i := range rt.Sandboxes {
		s := &rt.Sandboxes[i]
		inUse := slices.ContainsFunc(rt.Containers, func(c Container) bool { return c.SandboxID == s.ID })
		if s != current && !inUse {
			d.act(Action{Kind: RemoveSandbox, SandboxID: s.ID, Reason: "Superseded"})
		}
	}
}
