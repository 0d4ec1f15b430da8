package podworker

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// initContainers starts the next init container, and sidecars that died. It says whether the app containers may start
// and nothing was begun.
func (d *decider) initContainers(sandbox *Sandbox) bool {
	if len(d.in.Pod.Spec.InitContainers) == 0 {
		return true
	}
	passed := initialized(d.in.Pod, d.in.Runtime, sandbox)
	for i := range d.in.Pod.Spec.InitContainers {
		spec := &d.in.Pod.Spec.InitContainers[i]
		if passed && !podfacts.IsSidecar(spec) {
			continue
		}
		last := d.in.Runtime.newest(spec.Name)
		if initDone(spec, last, sandbox, d.in) {
			continue
		}
		if last != nil && last.alive() {
			if passed {
				continue
			}
			return false
		}
		if d.start(spec, last, true) {
			return false
		}
		if !passed {
			return false
		}
	}
	return true
}

// initDone says whether the next container may start: an init container ended well, a sidecar is started.
func initDone(spec *corev1.Container, last *Container, sandbox *Sandbox, in *Input) bool {
	if last == nil || last.SandboxID != sandbox.ID {
		return false
	}
	if podfacts.IsSidecar(spec) {
		return last.State == Running && started(spec, in.probe(spec.Name, last.ID))
	}
	return last.State == Exited && last.ExitCode == 0
}

// initialized says whether an app container was ever made in the sandbox: the init containers then need not run again.
func initialized(pod *corev1.Pod, rt *Runtime, sandbox *Sandbox) bool {
	if sandbox == nil {
		return false
	}
	for i := range rt.Containers {
		c := &rt.Containers[i]
		if c.SandboxID != sandbox.ID {
			continue
		}
		if spec, init := findContainer(pod, c.Name); spec != nil && !init {
			return true
		}
	}
	return false
}

// appContainers starts the first app container that should run and can be started. It says whether nothing was begun.
func (d *decider) appContainers() bool {
	for i := range d.in.Pod.Spec.Containers {
		spec := &d.in.Pod.Spec.Containers[i]
		last := d.in.Runtime.newest(spec.Name)
		if last != nil && (last.alive() || !shouldRestart(d.in.Pod, spec, last)) {
			continue
		}
		if d.start(spec, last, false) {
			return false
		}
	}
	return true
}

// ephemeralContainers starts the first container that was added to the running pod and was never started. It says
// whether nothing was begun. They wait for no other container, and no other one for them.
func (d *decider) ephemeralContainers() bool {
	for i := range d.in.Pod.Spec.EphemeralContainers {
		spec := podfacts.Ephemeral(&d.in.Pod.Spec.EphemeralContainers[i])
		last := d.in.Runtime.newest(spec.Name)
		if last != nil && last.State != Created {
			continue
		}
		if s := statusOf(d.in.Pod, spec.Name); last == nil && s != nil && s.ContainerID != "" {
			continue // it ran, and the runtime has forgotten it
		}
		if d.start(spec, last, false) {
			return false
		}
	}
	return true
}

// start takes the next step towards a running container. It says whether there was one to take now.
func (d *decider) start(spec *corev1.Container, last *Container, init bool) bool {
	m := d.mem.find(spec.Name)
	var exit time.Time
	changed := last != nil && (specChanged(spec, last) || d.mem.sizes.differs(spec, last) == restart)
	if last != nil && last.State == Exited && !changed {
		exit = last.FinishedAt
		if d.backsOff(spec, m, exit) {
			return false
		}
	}
	if m != nil && d.waiting(&m.retry) {
		return false
	}
	if m == nil || m.image != spec.Image { // the spec may have changed during the pull
		if m != nil && d.pullBacksOff(spec, m) {
			return false
		}
		d.act(Action{Kind: PullImage, Container: spec.Name, Init: init, image: spec.Image})
		return true
	}
	d.act(Action{Kind: StartContainer, Container: spec.Name, Init: init, SandboxID: d.in.Runtime.sandbox().ID,
		Attempt: nextAttempt(d.in, spec.Name, last), lastExit: exit, again: changed})
	return true
}

// specChanged says whether the container was made from another spec than it would be made from now: what happened to it
// then says nothing about how the next one will do.
func specChanged(spec *corev1.Container, c *Container) bool {
	return c.SpecHash != 0 && c.SpecHash != ContainerHash(spec)
}

func (d *decider) backsOff(spec *corev1.Container, m *containerMemory, exit time.Time) bool {
	if m == nil || !d.before(m.restart.until(exit, d.in.Now)) {
		return false
	}
	if !m.toldRestart {
		d.act(Action{Kind: Announce, Container: spec.Name, Reason: ReasonCrashLoopBackOff,
			Message: fmt.Sprintf("Back-off restarting failed container %s in pod %s", spec.Name, podText(d.in.Pod))})
	}
	return true
}

func (d *decider) pullBacksOff(spec *corev1.Container, m *containerMemory) bool {
	if m.pull.delay == 0 || m.failing != spec.Image || !d.before(m.pull.updated.Add(m.pull.delay)) {
		return false
	}
	if shown := m.pull.updated.Add(pullErrorShown); d.before(shown) || m.toldPull {
		return true
	}
	d.act(Action{Kind: Announce, Container: spec.Name, Reason: ReasonImagePullBackOff,
		Message: pullBackOffText(spec.Image, m.waiting.Message)})
	return true
}

func pullBackOffText(image, cause string) string {
	return fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", image, cause)
}

func restartBackOffText(name string, wait time.Duration, pod *corev1.Pod) string {
	return fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", wait, name, podText(pod))
}

// podText names a pod as the kubelet's messages do.
func podText(pod *corev1.Pod) string {
	return pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")"
}

// nextAttempt is one more than every attempt known of the container, from the runtime or from its status.
func nextAttempt(in *Input, name string, last *Container) uint32 {
	next := uint32(0)
	if last != nil {
		next = last.Attempt + 1
	}
	if s := statusOf(in.Pod, name); s != nil && s.ContainerID != "" {
		next = max(next, uint32(s.RestartCount)+1)
	}
	return next
}

func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	return podfacts.ContainerStatus(&pod.Status, name)
}

// findContainer returns the container of that name in the spec, and whether it is an init container; nil if none, or if
// it was added to the running pod.
func findContainer(pod *corev1.Pod, name string) (c *corev1.Container, init bool) {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i], false
		}
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return &pod.Spec.InitContainers[i], true
		}
	}
	return nil, false
}

// sidecarIndex is the place of a sidecar among the init containers, -1 for every other container.
func sidecarIndex(pod *corev1.Pod, name string) int {
	if pod == nil {
		return -1
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name && podfacts.IsSidecar(c) {
			return i
		}
	}
	return -1
}

// started says whether a running container is past its startup probe.
func started(spec *corev1.Container, p *Probe) bool {
	if spec.StartupProbe == nil {
		return true
	}
	return p != nil && p.Started
}

// restartPolicy is the container's own policy, else the pod's. Sidecars always restart.
func restartPolicy(pod *corev1.Pod, spec *corev1.Container) corev1.RestartPolicy {
	if spec.RestartPolicy != nil {
		return corev1.RestartPolicy(*spec.RestartPolicy)
	}
	return pod.Spec.RestartPolicy
}

// shouldRestart says whether a container that is not running should run again, by its restart policy and rules.
func shouldRestart(pod *corev1.Pod, spec *corev1.Container, last *Container) bool {
	if last.State != Exited {
		return true // it never ran, or nobody knows
	}
	for i := range spec.RestartPolicyRules {
		if rule := &spec.RestartPolicyRules[i]; ruleMatches(rule, last.ExitCode) {
			return rule.Action == corev1.ContainerRestartRuleActionRestart
		}
	}
	switch restartPolicy(pod, spec) {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return last.ExitCode != 0
	default:
		return true
	}
}

func ruleMatches(rule *corev1.ContainerRestartRule, code int32) bool {
	if rule.ExitCodes == nil {
		return false
	}
	in := false
	for _, v := range rule.ExitCodes.Values {
		in = in || v == code
	}
	return in == (rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn)
}

// ContainerHash identifies what of a container's spec may change while the pod lives and needs a restart to take
// effect: its image. It is never 0.
func ContainerHash(c *corev1.Container) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, s := range [...]string{c.Name, "\x00", c.Image} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * prime
		}
	}
	return max(h, 1)
}

// HashText and ParseHash turn a ContainerHash into the text that is kept with a container, and back; ParseHash returns
// 0 for text that is none.
func HashText(h uint64) string { return strconv.FormatUint(h, 16) }

// ParseHash reads what HashText wrote.
func ParseHash(s string) uint64 {
	h, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0
	}
	return h
}
