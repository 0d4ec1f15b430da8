// Package shutdown ends the pods of a node whose machine goes down: in order, and in the time that there is.
package shutdown

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/podadmission"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/remember"
	"github.com/everynode/everynode/internal/agent/staticpods"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// What pods that end with their node are told, in the kubelet's words.
const (
	endedReason  = "Terminated"
	endedMessage = "Pod was terminated in response to imminent node shutdown."
	// closedReason is that of pods which come then.
	closedReason = "NodeShutdown"
)

const (
	// lookEvery is how often a node that shuts down looks whether its pods have ended.
	lookEvery = 100 * time.Millisecond
	// reportPatience is how long it then waits until the API knows.
	reportPatience = 5 * time.Second
	// statePatience is how long systemd may take to say how the machine is.
	statePatience = 5 * time.Second
)

// Pods are the pods of a node; pods.Manager is one.
type Pods interface {
	// Close takes no more pods, for this reason.
	Close(why *podadmission.Refusal)
	ActivePods() []*corev1.Pod
	Active(uid types.UID) bool
	Terminate(uid types.UID, t podworker.Termination) bool
}

// Shutdown ends the pods of a node in order: ordinary ones first, then those that the node needs most.
type Shutdown struct {
	// Grace is how long all of it may take, Critical how much of that is kept for the critical pods.
	Grace, Critical time.Duration
	Pods            Pods
	// Announce has the node say that it is not ready, because it shuts down.
	Announce func()
	// Reported reports whether the API knows all that there is to know.
	Reported func() bool
	Clock    clock.Clock
}

// systemdDir is there on a machine that systemd has started.
const systemdDir = "/run/systemd/system"

// MachineStops reports whether the machine is going down, and not only this program, as for an
// upgrade. Systemd knows; on a machine without it, whoever ends the agent means the machine.
func MachineStops(ctx context.Context) bool { return machineStops(ctx, systemdDir, systemState) }

func machineStops(ctx context.Context, dir string, state func(context.Context) (string, error)) bool {
	if _, err := os.Stat(dir); err != nil {
		return true
	}
	is, err := state(ctx)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot ask systemd whether the machine is going down; pods are ended as if it were")
		return true
	}
	return is == "stopping"
}

// systemState is what systemd says of the machine as a whole, as "running".
func systemState(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, statePatience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "is-system-running").Output()
	if is := strings.TrimSpace(string(out)); is != "" {
		return is, nil // it also ends with an error for all but "running"
	}
	return "", fmt.Errorf("ask systemd for the machine's state: %w", err)
}

// Run returns once no pod runs any more, or the time is over.
func (s *Shutdown) Run(ctx context.Context) {
	klog.FromContext(ctx).Info("Shutting the node down", "grace", s.Grace, "ofThatForCriticalPods", s.Critical)
	s.Pods.Close(&podadmission.Refusal{Reason: closedReason, Message: "Pod was rejected as the node is shutting down."})
	s.Announce()
	isCritical := func(pod *corev1.Pod) bool {
		u := eviction.Usage{Pod: pod, Static: staticpods.IsUID(pod.UID)}
		return u.Critical()
	}
	last := s.Clock.Now().Add(s.Grace)
	s.end(ctx, last.Add(-s.Critical), func(pod *corev1.Pod) bool {
		return nodestartup.GroupOf(pod) == 0 && !isCritical(pod)
	})
	groups := groupsOf(s.Pods.ActivePods())
	for i, group := range groups {
		now := s.Clock.Now()
		share := max(last.Sub(now), 0) / time.Duration(len(groups)-i)
		s.end(ctx, now.Add(share), func(pod *corev1.Pod) bool {
			return nodestartup.GroupOf(pod) == group && (group > 0 || isCritical(pod))
		})
	}
	s.await(ctx, s.Clock.Now().Add(reportPatience), s.Reported)
}

// groupsOf are the groups of daemons among the pods in the order in which they end: those of none, then the last that
// was to start. Each has its share of what time there is, so that one which hangs takes none of the others'.
func groupsOf(pods []*corev1.Pod) []int {
	groups := []int{0}
	for _, pod := range pods {
		groups = append(groups, nodestartup.GroupOf(pod))
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	slices.Reverse(groups[1:])
	return groups
}

// end ends the pods that are meant and waits for them until the deadline.
func (s *Shutdown) end(ctx context.Context, deadline time.Time, meant func(*corev1.Pod) bool) {
	list := slices.DeleteFunc(s.Pods.ActivePods(), func(pod *corev1.Pod) bool { return !meant(pod) })
	left := max(int64(deadline.Sub(s.Clock.Now())/time.Second), 1)
	for _, pod := range list {
		s.Pods.Terminate(pod.UID, podworker.Termination{Reason: endedReason, Message: endedMessage, Grace: left})
	}
	s.await(ctx, deadline, func() bool {
		list = slices.DeleteFunc(list, func(pod *corev1.Pod) bool { return !s.Pods.Active(pod.UID) })
		return len(list) == 0
	})
	for _, pod := range list {
		klog.FromContext(ctx).Info("A pod did not end in the time that the node had to shut down", "pod", klog.KObj(pod))
	}
}

func (s *Shutdown) await(ctx context.Context, deadline time.Time, done func() bool) {
	for !done() && s.Clock.Now().Before(deadline) {
		select {
		case <-ctx.Done():
			return
		case <-s.Clock.After(lookEvery):
		}
	}
}

// withNode reports whether a pod that could start again ended because its node shut down: that is no end of it for a
// start without a control plane, where nobody could replace it. One that the API knows to have ended has its phase from
// there.
func withNode(pod remember.Pod) bool {
	return pod.Ended != nil && (pod.Ended.Reason == endedReason || pod.Ended.Reason == closedReason) &&
		pod.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever
}

// Survivors returns the pods of an earlier run without the ends that came with the node's.
func Survivors(known []remember.Pod) []remember.Pod {
	out := slices.Clone(known)
	for i := range out {
		if withNode(out[i]) {
			out[i].Ended = nil
		}
	}
	return out
}
