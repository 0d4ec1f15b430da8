package podworker

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/objects/nodestartup"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// Status returns the status of the pod. Prev is the status that was reported last (at first the API object's); times
// and facts that the node no longer has are carried over from it. HostIPs are the node's addresses. In.Pod must be set.
func Status(in Input, prev *corev1.PodStatus, hostIPs []string) corev1.PodStatus {
	if in.Runtime == nil {
		in.Runtime = &Runtime{}
	}
	b := statusBuilder{in: &in, prev: prev}
	s := corev1.PodStatus{
		ObservedGeneration: in.Pod.Generation,
		QOSClass:           prev.QOSClass,
		NominatedNodeName:  in.Pod.Status.NominatedNodeName,
		StartTime:          prev.StartTime,
	}
	if s.QOSClass == "" {
		s.QOSClass = podfacts.QOS(in.Pod)
	}
	if s.StartTime == nil {
		now := seconds(in.Now)
		s.StartTime = &now
	}
	if in.Memory.Rejected() && len(in.Runtime.Sandboxes) == 0 {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, in.Memory.rejected.Reason, in.Memory.rejected.Message
		s.Conditions = b.conditions(&s)
		return s
	}
	b.addresses(&s, hostIPs)
	s.InitContainerStatuses = b.containers(in.Pod.Spec.InitContainers, prev.InitContainerStatuses, true)
	s.ContainerStatuses = b.containers(in.Pod.Spec.Containers, prev.ContainerStatuses, false)
	s.EphemeralContainerStatuses = b.ephemeral()
	boundMessages(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses)
	e := phaseOf(&in, &s)
	s.Phase, s.Reason, s.Message = e.phase, e.reason, e.message
	s.Conditions = b.conditions(&s)
	return s
}

type statusBuilder struct {
	in   *Input
	prev *corev1.PodStatus
}

func (b *statusBuilder) addresses(s *corev1.PodStatus, hostIPs []string) {
	if len(hostIPs) > 0 {
		s.HostIP = hostIPs[0]
		s.HostIPs = make([]corev1.HostIP, len(hostIPs))
		for i, ip := range hostIPs {
			s.HostIPs[i].IP = ip
		}
	}
	s.PodIP, s.PodIPs = b.prev.PodIP, b.prev.PodIPs
	ips := hostIPs
	if !b.in.Pod.Spec.HostNetwork {
		sandbox := b.in.Runtime.sandbox()
		if sandbox == nil || len(sandbox.IPs) == 0 {
			return
		}
		ips = sandbox.IPs
	}
	if len(ips) == 0 {
		return
	}
	s.PodIP = ips[0]
	s.PodIPs = make([]corev1.PodIP, len(ips))
	for i, ip := range ips {
		s.PodIPs[i].IP = ip
	}
}

// conditions returns the pod's conditions: the node's own, and whatever others set.
func (b *statusBuilder) conditions(s *corev1.PodStatus) []corev1.PodCondition {
	api := b.in.Pod.Status.Conditions
	out := make([]corev1.PodCondition, 0, max(5, len(api)))
	if rejected := len(s.ContainerStatuses) == 0; !rejected {
		out = append(out, b.sandboxCondition(s))
		out = append(out, b.initialized(s))
		ready := b.containersReady(s, b.in.Pod.Spec.Containers, s.ContainerStatuses)
		out = append(out, b.podReady(ready), ready)
	}
	if b.in.Pod.Spec.NodeName != "" {
		out = append(out, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	}
	if t := b.in.Memory.terminated; t.Reason != "" && (!ended(s) || s.Reason == t.Reason) {
		out = append(out, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: corev1.PodReasonTerminationByKubelet, Message: t.Message})
	}
	out = append(out, mounted(b.in.Content, findCondition(b.prev.Conditions, content.MountedCondition))...)
	if b.in.Fetched != nil {
		out = append(out, *b.in.Fetched)
	}
	if b.in.Held != "" {
		out = append(out, corev1.PodCondition{Type: nodestartup.WaitsCondition, Status: corev1.ConditionTrue,
			Reason: "MachineStarted", Message: b.in.Held})
	}
	out = append(out, b.resizing()...)
	for i := range out {
		out[i].ObservedGeneration = b.in.Pod.Generation
		out[i].LastTransitionTime = seconds(b.in.Now)
		// Other content is another transition, and so is an answer to another request; other words are none.
		same := func(old *corev1.PodCondition) bool {
			switch old.Type {
			case content.MountedCondition:
				return old.Status == out[i].Status && old.Message == out[i].Message
			case fetch.Condition:
				return old.Status == out[i].Status && fetch.SameRequest(old, &out[i])
			}
			return old.Status == out[i].Status
		}
		if old := findCondition(b.prev.Conditions, out[i].Type); old != nil && same(old) {
			out[i].LastTransitionTime = old.LastTransitionTime
		}
	}
	return append(out, b.others(out)...)
}

// others are the conditions that the API has and the node does not set, but for those that it does not set any more.
func (b *statusBuilder) others(set []corev1.PodCondition) (out []corev1.PodCondition) {
	api := b.in.Pod.Status.Conditions
	for i := range api {
		switch t := api[i].Type; {
		case t == corev1.PodResizePending, t == corev1.PodResizeInProgress, t == fetch.Condition,
			t == nodestartup.WaitsCondition:
		case findCondition(set, t) == nil:
			out = append(out, api[i])
		}
	}
	return out
}

// maxReason bounds why volumes do not show what they are to.
const maxReason = 1024

// mounted says whether the volumes show what they were pointed at, if they were. Copies do not change: volumes that
// showed them before still do, also while the node cannot read them.
func mounted(c Content, before *corev1.PodCondition) []corev1.PodCondition {
	if c.Key == "" {
		return nil
	}
	is := corev1.PodCondition{
		Type: content.MountedCondition, Status: corev1.ConditionTrue, Reason: "Mounted", Message: c.Key,
	}
	shown := before != nil && before.Status == corev1.ConditionTrue && before.Message == c.Key
	if c.Err != nil && !shown {
		text := c.Err.Error()
		is.Status, is.Reason = corev1.ConditionFalse, "NotMounted"
		is.Message += ": " + strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
	}
	return []corev1.PodCondition{is}
}

func findCondition(list []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range list {
		if list[i].Type == t {
			return &list[i]
		}
	}
	return nil
}

func (b *statusBuilder) sandboxCondition(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}
	sandbox := b.in.Runtime.sandbox()
	if !ended(s) && sandbox != nil && sandbox.Ready && (sandbox.HostNetwork || len(sandbox.IPs) > 0) {
		c.Status = corev1.ConditionTrue
	}
	return c
}

func ended(s *corev1.PodStatus) bool {
	return s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
}

func (b *statusBuilder) initialized(s *corev1.PodStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}
	if initializedByStatus(b.in.Pod, s) {
		if s.Phase == corev1.PodSucceeded {
			c.Reason = "PodCompleted"
		}
		return c
	}
	c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotInitialized"
	c.Message = "containers with incomplete status: [" + strings.Join(unfinishedInit(b.in.Pod, s), " ") + "]"
	return c
}

func (b *statusBuilder) containersReady(s *corev1.PodStatus, specs []corev1.Container,
	statuses []corev1.ContainerStatus) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse}
	switch s.Phase {
	case corev1.PodSucceeded:
		c.Reason = "PodCompleted"
		return c
	case corev1.PodFailed:
		c.Reason = "PodFailed"
		return c
	}
	var unready []string
	for i := range b.in.Pod.Spec.InitContainers {
		spec := &b.in.Pod.Spec.InitContainers[i]
		if podfacts.IsSidecar(spec) && !s.InitContainerStatuses[i].Ready {
			unready = append(unready, spec.Name)
		}
	}
	for i := range specs {
		if !statuses[i].Ready {
			unready = append(unready, specs[i].Name)
		}
	}
	if len(unready) > 0 {
		c.Reason = "ContainersNotReady"
		c.Message = "containers with unready status: [" + strings.Join(unready, " ") + "]"
		return c
	}
	c.Status = corev1.ConditionTrue
	return c
}

// podReady is the condition of the containers, and of the readiness gates that others set.
func (b *statusBuilder) podReady(containers corev1.PodCondition) corev1.PodCondition {
	c := containers
	c.Type = corev1.PodReady
	if containers.Status != corev1.ConditionTrue {
		return c
	}
	var unmet []string
	for _, gate := range b.in.Pod.Spec.ReadinessGates {
		cond := findCondition(b.in.Pod.Status.Conditions, gate.ConditionType)
		switch {
		case cond == nil:
			unmet = append(
				unmet, `corresponding condition of pod readiness gate "`+string(gate.ConditionType)+`" does not exist.`,
			)
		case cond.Status != corev1.ConditionTrue:
			unmet = append(
				unmet, `the status of pod readiness gate "`+string(gate.ConditionType)+`" is not "True", but `+string(cond.Status),
			)
		}
	}
	if len(unmet) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(unmet, ", ")
	}
	return c
}

// seconds is the time as the API keeps it, so that a status that comes back from there is equal.
func seconds(t time.Time) metav1.Time {
	if t.IsZero() {
		return metav1.Time{}
	}
	return metav1.Time{Time: t.Truncate(time.Second)}
}
