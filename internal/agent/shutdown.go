package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/podadmission"
	"github.com/everynode/everynode/internal/agent/podworker"
	"github.com/everynode/everynode/internal/agent/staticpods"
)

// What pods that end with their node are told, in the kubelet's words.
const (
	shutdownReason  = "Terminated"
	shutdownMessage = "Pod was terminated in response to imminent node shutdown."
	// closedReason is that of pods which come then.
	closedReason = "NodeShutdown"
)

const (
	// shutdownLook is how often a node that shuts down looks whether its pods have ended.
	shutdownLook = 100 * time.Millisecond
	// reportPatience is how long it then waits until the API knows.
	reportPatience = 5 * time.Second
	// statePatience is how long systemd may take to say how the machine is.
	statePatience = 5 * time.Second
)

// shutdown ends the pods of a node in order: ordinary ones first, then those that the node needs most.
type shutdown struct {
	// grace is how long all of it may take, critical how much of that is kept for the critical pods.
	grace, critical time.Duration
	pods            *pods
	// announce has the node say that it is not ready, because it shuts down.
	announce func()
	// reported says whether the API knows all that there is to know.
	reported func() bool
	clock    clock.Clock
}

// systemdDir is there on a machine that systemd has started.
const systemdDir = "/run/systemd/system"

// machineStops reports whether the machine is going down, and not only this program, as for an
// upgrade. Systemd knows; on a machine without it, whoever ends the agent means the machine.
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

// run returns once no pod runs any more, or the time is over.
func (s *shutdown) run(ctx context.Context) {
	klog.FromContext(ctx).Info("Shutting the node down", "grace", s.grace, "ofThatForCriticalPods", s.critical)
	s.pods.close(&podadmission.Refusal{Reason: closedReason, Message: "Pod was rejected as the node is shutting down."})
	s.announce()
	isCritical := func(pod *corev1.Pod) bool {
		u := eviction.Usage{Pod: pod, Static: staticpods.IsUID(pod.UID)}
		return u.Critical()
	}
	began := s.clock.Now()
	s.end(ctx, began.Add(s.grace-s.critical), func(pod *corev1.Pod) bool { return !isCritical(pod) })
	s.end(ctx, began.Add(s.grace), isCritical)
	s.await(ctx, s.clock.Now().Add(reportPatience), s.reported)
}

// end ends the pods that are meant and waits for them until the deadline.
func (s *shutdown) end(ctx context.Context, deadline time.Time, meant func(*corev1.Pod) bool) {
	list := slices.DeleteFunc(s.pods.activePods(), func(pod *corev1.Pod) bool { return !meant(pod) })
	left := max(int64(deadline.Sub(s.clock.Now())/time.Second), 1)
	for _, pod := range list {
		s.pods.terminate(pod.UID, podworker.Termination{Reason: shutdownReason, Message: shutdownMessage, Grace: left})
	}
	s.await(ctx, deadline, func() bool {
		list = slices.DeleteFunc(list, func(pod *corev1.Pod) bool { return !s.pods.active(pod.UID) })
		return len(list) == 0
	})
	for _, pod := range list {
		klog.FromContext(ctx).Info("A pod did not end in the time that the node had to shut down", "pod", klog.KObj(pod))
	}
}

func (s *shutdown) await(ctx context.Context, deadline time.Time, done func() bool) {
	for !done() && s.clock.Now().Before(deadline) {
		select {
		case <-ctx.Done():
			return
		case <-s.clock.After(shutdownLook):
		}
	}
}
