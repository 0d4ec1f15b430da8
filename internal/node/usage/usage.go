// Package usage is what a node's agent says, and the API server reads, about how much the node and its containers use.
// On the wire it is a part of the kubelet's /stats/summary.
package usage

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Path is where an agent serves a Summary.
const Path = "/stats/summary"

// Brief is the parameter that asks for processor time and memory only.
const Brief = "only_cpu_and_memory"

// Summary is the use of a node and its pods.
type Summary struct {
	Node Node  `json:"node"`
	Pods []Pod `json:"pods"`
}

// Node is the use of a whole machine.
type Node struct {
	Name      string       `json:"nodeName"`
	StartTime *metav1.Time `json:"startTime,omitempty"`
	CPU       *CPU         `json:"cpu,omitempty"`
	Memory    *Memory      `json:"memory,omitempty"`
	Network   *Network     `json:"network,omitempty"`
	// FS is the file system that pods write to.
	FS      *FS      `json:"fs,omitempty"`
	Runtime *Runtime `json:"runtime,omitempty"`
	Rlimit  *Rlimit  `json:"rlimit,omitempty"`
}

// Runtime is the use of what the container runtime keeps.
type Runtime struct {
	ImageFS *FS `json:"imageFs,omitempty"`
}

// Rlimit is how many processes and threads there can be, and are.
type Rlimit struct {
	Time    metav1.Time `json:"time"`
	MaxPID  int64       `json:"maxpid"`
	CurProc int64       `json:"curproc"`
}

// FS is the use of a file system, or of a part of it; what is not known is left out.
type FS struct {
	Time           metav1.Time `json:"time"`
	AvailableBytes *uint64     `json:"availableBytes,omitempty"`
	CapacityBytes  *uint64     `json:"capacityBytes,omitempty"`
	UsedBytes      *uint64     `json:"usedBytes,omitempty"`
	InodesFree     *uint64     `json:"inodesFree,omitempty"`
	Inodes         *uint64     `json:"inodes,omitempty"`
	InodesUsed     *uint64     `json:"inodesUsed,omitempty"`
}

// Network is what went through network interfaces since they were there; the first is the main one.
type Network struct {
	Time metav1.Time `json:"time"`
	Interface
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// Interface is what went through one.
type Interface struct {
	Name     string `json:"name"`
	RxBytes  uint64 `json:"rxBytes"`
	RxErrors uint64 `json:"rxErrors"`
	TxBytes  uint64 `json:"txBytes"`
	TxErrors uint64 `json:"txErrors"`
}

// Processes is how many processes there are.
type Processes struct {
	Count uint64 `json:"process_count"`
}

// Volume is the use of a pod's volume.
type Volume struct {
	Name string `json:"name"`
	FS
}

// Pod is the use of a pod's containers.
type Pod struct {
	Ref              Reference    `json:"podRef"`
	StartTime        *metav1.Time `json:"startTime,omitempty"`
	Containers       []Container  `json:"containers"`
	CPU              *CPU         `json:"cpu,omitempty"`
	Memory           *Memory      `json:"memory,omitempty"`
	Network          *Network     `json:"network,omitempty"`
	Volumes          []Volume     `json:"volume,omitempty"`
	EphemeralStorage *FS          `json:"ephemeral-storage,omitempty"`
	ProcessStats     *Processes   `json:"process_stats,omitempty"`
}

// Reference names a pod. A static pod has the UID of its mirror.
type Reference struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
}

// Container is the use of one container.
type Container struct {
	Name      string       `json:"name"`
	StartTime *metav1.Time `json:"startTime,omitempty"`
	CPU       *CPU         `json:"cpu,omitempty"`
	Memory    *Memory      `json:"memory,omitempty"`
	// Rootfs is what the container wrote to its own file system, Logs what it said.
	Rootfs *FS `json:"rootfs,omitempty"`
	Logs   *FS `json:"logs,omitempty"`
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

// Memory is memory in bytes. The working set is what is in use and cannot be dropped at once.
type Memory struct {
	Time            metav1.Time `json:"time"`
	AvailableBytes  *uint64     `json:"availableBytes,omitempty"`
	UsageBytes      *uint64     `json:"usageBytes,omitempty"`
	WorkingSetBytes uint64      `json:"workingSetBytes"`
	RSSBytes        *uint64     `json:"rssBytes,omitempty"`
	PageFaults      *uint64     `json:"pageFaults,omitempty"`
	MajorPageFaults *uint64     `json:"majorPageFaults,omitempty"`
}

// Sample is processor time at a moment.
type Sample struct {
	At   time.Time
	Used time.Duration
}

// Rate is the use between two samples, nil if they say nothing: no time passed, or what was counted began again.
func Rate(before, after Sample) *CPU {
	window := after.At.Sub(before.At)
	if before.At.IsZero() || window <= 0 || after.Used < before.Used {
		return nil
	}
	return &CPU{Time: metav1.NewTime(after.At), Window: metav1.Duration{Duration: window},
		UsageNanoCores:       uint64(float64(after.Used-before.Used) / float64(window) * 1e9),
		UsageCoreNanoSeconds: uint64(after.Used)}
}
