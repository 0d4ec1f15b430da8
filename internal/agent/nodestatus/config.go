package nodestatus

import (
	"context"
	"errors"
	"net"
	"runtime"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// Config says what to report and where the facts come from. Fields without a stated default must be set.
type Config struct {
	// NodeName is the Node's name; NodeIPs are its internal addresses, the primary one first.
	NodeName string
	NodeIPs  []net.IP
	// Hostname is the address of type Hostname and the label kubernetes.io/hostname; the default is NodeName.
	Hostname string
	// Labels are set on the Node, also on one that exists. Taints are set on a Node that this agent creates.
	Labels map[string]string
	Taints []corev1.Taint

	// Client writes the Node and its lease. Recorder takes the node's events; nil drops them.
	Client   kubernetes.Interface
	Recorder record.EventRecorder

	// Runtime asks the container runtime how it is. An error means that it can't be reached.
	Runtime func(ctx context.Context) (Runtime, error)
	// Images lists the images on this node; nil reports none.
	Images func(ctx context.Context) ([]corev1.ContainerImage, error)

	// KubeletVersion is shown as the Node's version, like v1.37.2. KubeletPort is where the agent serves logs and exec.
	KubeletVersion string
	KubeletPort    int32

	// DataDir is on the disk that pods fill. CgroupRoot is the cgroup (as /everynode/n1) whose limits bound the node; "" for none.
	DataDir    string
	CgroupRoot string
	// MaxPods is how many pods the node takes; the default is 110.
	MaxPods int64
	// Reserved is kept back for the system: allocatable is capacity less Reserved and less what Thresholds keep free.
	Reserved corev1.ResourceList
	// Thresholds say when the node is under pressure; the default is DefaultThresholds.
	Thresholds *Thresholds

	// Root is where /proc, /sys and /etc are found; the default is "/". For tests.
	Root string
	// Clock tells the time; the default is the real one.
	Clock clock.WithTicker
}

// Thresholds are what must stay free; below, the node is under pressure. Zero switches a check off.
type Thresholds struct {
	// MemoryAvailable is in bytes.
	MemoryAvailable int64
	// DiskAvailable, InodesFree and PIDsAvailable are parts of the whole, from 0 to 1.
	DiskAvailable, InodesFree, PIDsAvailable float64
}

// DefaultThresholds are Kubernetes' hard eviction thresholds, and one hundredth of the process IDs.
var DefaultThresholds = Thresholds{MemoryAvailable: 100 << 20, DiskAvailable: 0.1, InodesFree: 0.05, PIDsAvailable: 0.01}

// Runtime is how a container runtime is.
type Runtime struct {
	// Name and Version, as containerd and 2.1.0.
	Name, Version string
	// Ready says that it can run containers, NetworkReady that it can connect them.
	Ready, NetworkReady Condition
}

// Condition is one condition of a container runtime, with the runtime's own reason and message.
type Condition struct {
	OK              bool
	Reason, Message string
}

// complete checks the configuration and fills in defaults.
func (c Config) complete() (Config, error) {
	switch {
	case c.NodeName == "":
		return c, errors.New("node status: the node has no name")
	case c.Client == nil || c.Runtime == nil:
		return c, errors.New("node status: Client and Runtime must be set")
	case c.DataDir == "":
		return c, errors.New("node status: DataDir must be set")
	}
	if c.Hostname == "" {
		c.Hostname = c.NodeName
	}
	if c.Recorder == nil {
		c.Recorder = &record.FakeRecorder{}
	}
	if c.MaxPods == 0 {
		c.MaxPods = 110
	}
	if c.Thresholds == nil {
		c.Thresholds = &DefaultThresholds
	}
	if c.Root == "" {
		c.Root = "/"
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c, nil
}

// labels are all labels that the agent keeps on the Node.
func (c Config) labels() map[string]string {
	labels := map[string]string{
		corev1.LabelHostname:      c.Hostname,
		corev1.LabelOSStable:      runtime.GOOS,
		corev1.LabelArchStable:    runtime.GOARCH,
		"beta.kubernetes.io/os":   runtime.GOOS,
		"beta.kubernetes.io/arch": runtime.GOARCH,
	}
	for name, value := range c.Labels {
		labels[name] = value
	}
	return labels
}

// allocatable is what pods may use of capacity.
func (c Config) allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	allocatable := capacity.DeepCopy()
	keep := func(name corev1.ResourceName, amount resource.Quantity) {
		quantity, ok := allocatable[name]
		if !ok {
			return
		}
		quantity.Sub(amount)
		if quantity.Sign() < 0 {
			quantity = resource.Quantity{Format: quantity.Format}
		}
		allocatable[name] = quantity
	}
	for name, amount := range c.Reserved {
		keep(name, amount)
	}
	keep(corev1.ResourceMemory, *resource.NewQuantity(c.Thresholds.MemoryAvailable, resource.BinarySI))
	disk := capacity[corev1.ResourceEphemeralStorage]
	keep(corev1.ResourceEphemeralStorage, *resource.NewQuantity(int64(float64(disk.Value())*c.Thresholds.DiskAvailable), resource.BinarySI))
	return allocatable
}
