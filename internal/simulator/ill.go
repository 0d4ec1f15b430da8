package simulator

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/everynode/everynode/internal/agent/podworker"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
	"github.com/everynode/everynode/internal/simulator/illness"
)

// forever is longer than any simulation.
const forever = 10 * 365 * 24 * time.Hour

// read takes in what a node's labels and annotations say of its faults, and reports whether the node must be looked at.
// nodes.mu is held.
func (n *nodes) read(known *node, labels, annotations map[string]string) bool {
	annotation := annotations[illness.Annotation]
	if known.labels != nil && known.annotation == annotation && maps.Equal(known.labels, labels) {
		return false
	}
	known.annotation, known.labels = annotation, labels
	before := known.patient.Ails()
	if err := known.patient.Read(labels, annotations, n.config.Clock.Now()); err != nil {
		klog.Background().WithName("simulator").Error(
			err, "Simulated node has a fault that cannot be read, and counts as having none", "node", known.name,
		)
	}
	known.reread = before || known.patient.Ails()
	return known.reread
}

// look finds out how the node is now, and whether there is anything for it to do. It comes again when that changes by
// itself.
func (n *nodes) look(name string) (known *node, acts bool) {
	n.mu.Lock()
	known = n.byName[name]
	if known == nil {
		n.mu.Unlock()
		return nil, false
	}
	before := known.state
	known.state = illness.State{}
	if known.patient.Ails() {
		now := n.config.Clock.Now()
		known.state = known.patient.Look(now)
		if next := known.state.Next; !next.IsZero() {
			n.queue.AddAfter(name, max(next.Sub(now), time.Millisecond))
		}
	}
	if before.Off && !known.state.Off {
		known.boots++
	}
	acts = known.acts()
	revisit := acts && (before.Silent || known.reread)
	if acts {
		known.reread = false
	}
	// One that is silent from the start is known to the API all the same.
	unheard := known.alive && !known.deleted && known.object == nil
	n.mu.Unlock()
	if revisit {
		n.revisit(name)
	}
	return known, acts || unheard
}

// condition is how the node was at the last look.
func (n *nodes) condition(of *node) illness.State {
	n.mu.Lock()
	defer n.mu.Unlock()
	return of.state
}

// noResize is why the node gives running pods no other amounts; "" if it does.
func (n *nodes) noResize(of *node) string {
	if of == nil {
		return ""
	}
	return n.condition(of).NoResize
}

// ward says what ails a pod of the node, and how often the node has come back from a loss of power.
func (n *nodes) ward(of *node, object *corev1.Pod) (ward *illness.Ward, boots int, err error) {
	if of == nil {
		return nil, 0, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	ward, err = of.patient.Ward(object)
	return ward, of.boots, err
}

// bootsOf returns how often the node has come back from a loss of power.
func (n *nodes) bootsOf(of *node) int {
	if of == nil {
		return 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return of.boots
}

// dies notes that the node will die of a pod's container.
func (n *nodes) dies(of *node, podUID string, container illness.Container) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if of.patient.Dies(podUID, container) {
		n.queue.Add(of.name)
	}
}

// survives notes that a pod is gone.
func (n *nodes) survives(of *node, podUID string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of.patient.Survives(podUID, n.config.Clock.Now())
}

// ails is what ails a container of the pod, or that its work comes to an end; attempt is how often it was started
// before.
func (p *pod) ails(object *corev1.Pod, container string, attempt uint32) illness.Container {
	spec := podfacts.Container(object, container)
	ill := p.ward.Container(object, spec)
	ill.Ends = ill.EndsAt(attempt)
	if !ill.Ends && task(object, spec) {
		ill.Ends, ill.After, ill.ExitCode, ill.Reason = true, max(ill.TaskTakes, taskTakes), 0, "Completed"
	}
	return ill
}

// taskTakes is how long the work of a container takes that has an end.
const taskTakes = time.Second

// task reports whether the container has work that ends, as those of a Job's pods do. Its pod is not started again
// whenever it ends; init containers end at once anyway.
func task(object *corev1.Pod, spec *corev1.Container) bool {
	if object == nil || spec == nil || object.Spec.RestartPolicy == corev1.RestartPolicyAlways ||
		object.Spec.RestartPolicy == "" {
		return false
	}
	return slices.ContainsFunc(object.Spec.Containers, func(c corev1.Container) bool { return c.Name == spec.Name })
}

// end lets containers that are due to end do so. It returns when the next one is.
func (p *pod) end(object *corev1.Pod, now time.Time) (next time.Time) {
	if object == nil {
		return next
	}
	for i := range p.runtime.Containers {
		c := &p.runtime.Containers[i]
		if c.State != podworker.Running {
			continue
		}
		ill := p.ails(object, c.Name, c.Attempt)
		if !ill.Ends {
			continue
		}
		if at := c.CreatedAt.Add(ill.After); now.Before(at) {
			next = earliest(next, at)
			continue
		}
		c.State, c.FinishedAt = podworker.Exited, whole(now)
		c.ExitCode, c.Reason, c.Message = ill.ExitCode, ill.Reason, ill.Message
	}
	return next
}

// deadly returns the container that the node dies of, if one runs.
func (p *pod) deadly(object *corev1.Pod) (illness.Container, bool) {
	if p.ward == nil {
		return illness.Container{}, false
	}
	for i := range p.runtime.Containers {
		c := &p.runtime.Containers[i]
		if ill := p.ails(object, c.Name, c.Attempt); c.State == podworker.Running && ill.Kills() {
			ill.Started = c.CreatedAt
			return ill, true
		}
	}
	return illness.Container{}, false
}

// lostPower ends all that ran on the node when it lost its power.
func (p *pod) lostPower(now time.Time) {
	for i := range p.runtime.Sandboxes {
		p.runtime.Sandboxes[i].Ready = false
	}
	for i := range p.runtime.Containers {
		if c := &p.runtime.Containers[i]; c.State == podworker.Running {
			c.State, c.FinishedAt, c.ExitCode, c.Reason = podworker.Exited, whole(now), 255, "Unknown"
		}
	}
}

// failProbes makes the probes of a container fail that can never succeed, and tells of it once.
func (p *pod) failProbes(probe *podworker.Probe, spec *corev1.Container, ill illness.Container) {
	kind := "Readiness"
	if spec.StartupProbe != nil {
		kind, probe.Started = "Startup", false
	}
	probe.Ready, probe.Message = false, kind+" probe failed: "+ill.Unready
	if p.toldUnready != probe.ContainerID {
		p.toldUnready = probe.ContainerID
		p.note(spec.Name, corev1.EventTypeWarning, "Unhealthy", probe.Message)
	}
}

// unprobed reports whether the container has no probe that could keep it from being ready.
func unprobed(spec *corev1.Container) bool {
	return spec != nil && spec.ReadinessProbe == nil && spec.StartupProbe == nil
}
