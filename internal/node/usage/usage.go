// Package usage is what a node's agent says, and the API server reads, about how much the node and its containers use. On the wire
// it is a part of the kubelet's /stats/summary.
package usage

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Path is where an agent serves a Summary.
const Path = "/stats/summary"

// Summary is the use of a node and its pods.
type Summary struct {
	Node Node  `json:"node"`
	Pods []Pod `json:"pods"`
}

// Node is the use of a whole machine.
type Node struct {
	Name   string  `json:"nodeName"`
	CPU    *CPU    `json:"cpu,omitempty"`
	Memory *Memory `json:"memory,omitempty"`
}

// Pod is the use of a pod's containers.
type Pod struct {
	Ref        Reference   `json:"podRef"`
	Containers []Container `json:"containers"`
}

// Reference names a pod. A static pod has the UID of its mirror.
type Reference struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

// Container is the use of one container.
type Container struct {
	Name   string  `json:"name"`
	CPU    *CPU    `json:"cpu,omitempty"`
	Memory *Memory `json:"memory,omitempty"`
}

// CPU is processor time: how much there was since the start, and how much in each second of late.
type CPU struct {
	Time metav1.Time `json:"time"`
	// UsageNanoCores is in billionths of a processor, over the Window before Time.
	UsageNanoCores       uint64 `json:"usageNanoCores"`
	UsageCoreNanoSeconds uint64 `json:"usageCoreNanoSeconds"`
	// Window is not in the kubelet's summary.
	Window metav1.Duration `json:"window"`
}

// Memory is the working set in bytes: what is in use and cannot be dropped at once.
type Memory struct {
	Time            metav1.Time `json:"time"`
	WorkingSetBytes uint64      `json:"workingSetBytes"`
}

// Sample is processor time at a moment.
type Sample struct {
	At   time.Time
	Used time.Duration
}

// Rate is the use between two samples, nil if they say nothing: no time passed, or what was counted began anew.
func Rate(before, after Sample) *CPU {
	window := after.At.Sub(before.At)
	if before.At.IsZero() || window <= 0 || after.Used < before.Used {
		return nil
	}
	return &CPU{Time: metav1.NewTime(after.At), Window: metav1.Duration{Duration: window},
		UsageNanoCores:       uint64(float64(after.Used-before.Used) / float64(window) * 1e9),
		UsageCoreNanoSeconds: uint64(after.Used)}
}
