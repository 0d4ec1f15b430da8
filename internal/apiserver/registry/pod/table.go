package pod

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/apiserver/table"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

var printer = table.Of(row,
	table.Name,
	table.Column{Name: "Ready", Description: "Containers that are ready, of all that should be."},
	table.Column{Name: "Status", Description: "What the pod is doing, or what keeps it from it."},
	table.Column{Name: "Restarts", Description: "How often containers were restarted, and when the last time."},
	table.Age,
	table.Column{Name: "IP", Wide: true, Description: "Address of the pod."},
	table.Column{Name: "Node", Wide: true, Description: "Node that the pod is assigned to."},
	table.Column{Name: "Nominated Node", Wide: true, Description: "Node on which room is being made for the pod."},
	table.Column{Name: "Readiness Gates", Wide: true, Description: "Readiness gates that are open, of all."},
)

func row(p *corev1.Pod, now time.Time) []any {
	s := summarize(p)
	restarts := strconv.Itoa(s.restarts)
	if s.restarts != 0 && !s.lastRestart.IsZero() {
		restarts = fmt.Sprintf("%d (%s ago)", s.restarts, table.Since(s.lastRestart, now))
	}
	ip := ""
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return []any{
		p.Name, fmt.Sprintf("%d/%d", s.ready, s.total), s.status, restarts, table.Since(p.CreationTimestamp, now),
		table.OrNone(ip), table.OrNone(p.Spec.NodeName), table.OrNone(p.Status.NominatedNodeName), openGates(p),
	}
}

func openGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return "<none>"
	}
	open := 0
	for _, g := range p.Spec.ReadinessGates {
		if conditionIs(p, g.ConditionType, corev1.ConditionTrue) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(p.Spec.ReadinessGates))
}

func conditionIs(p *corev1.Pod, t corev1.PodConditionType, status corev1.ConditionStatus) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c.Status == status
		}
	}
	return false
}

// summary is a pod's state in a few words.
type summary struct {
	status       string
	ready, total int
	restarts     int
	lastRestart  metav1.Time
}

// reasonNodeLost is given to pods of a node that has vanished.
const reasonNodeLost = "NodeLost"

// summarize says how a pod is. The word comes from the first of these that has
// something to tell: deletion, the init container at work, the first container
// that is not running, the pod's own reason, its phase.
func summarize(p *corev1.Pod) summary {
	s := summary{status: string(p.Status.Phase), total: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		s.status = p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.status = corev1.PodReasonSchedulingGated
		}
	}
	sidecars := map[string]bool{}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; podfacts.IsSidecar(c) {
			sidecars[c.Name] = true
			s.total++
		}
	}
	ofSidecars, initializing := s.addInit(p, sidecars)
	if !initializing || conditionIs(p, corev1.PodInitialized, corev1.ConditionTrue) {
		s.restarts, s.lastRestart = ofSidecars.restarts, ofSidecars.lastRestart
		s.addContainers(p)
	}
	terminal := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	switch {
	case p.DeletionTimestamp != nil && p.Status.Reason == reasonNodeLost:
		s.status = "Unknown"
	case p.DeletionTimestamp != nil && !terminal:
		s.status = "Terminating"
	}
	return s
}

// countRestarts adds a container's restarts.
func (s *summary) countRestarts(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && s.lastRestart.Before(&t.FinishedAt) {
		s.lastRestart = t.FinishedAt
	}
}

// addInit looks at the init containers up to the one that is at work, if any.
func (s *summary) addInit(p *corev1.Pod, sidecars map[string]bool) (ofSidecars summary, initializing bool) {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.countRestarts(c)
		if sidecars[c.Name] {
			ofSidecars.countRestarts(c)
		}
		ended, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case ended != nil && ended.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case ended != nil:
			s.status = "Init:" + endReason(ended)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.status = "Init:" + waiting.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return ofSidecars, true
	}
	return ofSidecars, false
}

// addContainers looks at the containers, the first one last, so that it has the last word.
func (s *summary) addContainers(p *corev1.Pod) {
	running := false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.countRestarts(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.status = endReason(c.State.Terminated)
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status != "Completed" || !running {
		return
	}
	s.status = "NotReady"
	if conditionIs(p, corev1.PodReady, corev1.ConditionTrue) {
		s.status = "Running"
	}
}

func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}
