package nodestatus

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
)

// Config says what to report and where the facts come from. Fields without a stated default must be set.
type Config struct {
	// NodeName is the Node's name; NodeIPs returns its internal addresses as they are now, the primary one first. While it
	// returns none, as nil does, what the Node says stays.
	NodeName string
	NodeIPs  func() []net.IP
	// Hostname is the address of type Hostname and the label kubernetes.io/hostname; the default is NodeName.
	Hostname string
	// Labels are set on the Node, also on one that exists. Taints are set on a Node that this agent creates.
	Labels map[string]string
	Taints []corev1.Taint
	// LiveContent has the Node say by a label that its agent gives running pods the content that they are pointed at.
	LiveContent bool
	// FetchesImages has it say that its agent fetches images that it is asked for.
	FetchesImages bool

	// Client writes the Node and its lease. Recorder takes the node's events; nil drops them.
	Client   kubernetes.Interface
	Recorder record.EventRecorder

	// Node is the Node as a watch shows it, shared and not changed; nil while none does. Without it the server is asked at
	// each look.
	Node func() *corev1.Node
	// Runtime asks the container runtime how it is. An error means that it can't be reached.
	Runtime func(ctx context.Context) (Runtime, error)
	// Healthy says what keeps the agent from running pods, such as a runtime that hangs; nil for nothing ever does.
	Healthy func() error
	// Network says how the pod network is, false until that is known. With nil the condition NetworkUnavailable is
	// somebody else's, such as a network daemon's.
	Network func() (Condition, bool)
	// ClockSkew is how far the machine's clock is ahead of the API server's; nil for never.
	ClockSkew func() time.Duration
	// Devices counts what device plugins offer: how much there is of each resource, and how much of that pods can have;
	// nil for none.
	Devices func() (capacity, allocatable corev1.ResourceList)
	// DevicesForgotten says that nobody knows which devices the node had in an earlier life: the first status sets the
	// amounts of resources that the Node has of then to zero. DevicesReset is told once that is written; nil for nobody.
	DevicesForgotten bool
	DevicesReset     func()
	// Restored reports whether the control plane is of another restore from a backup than the one with which this node was
	// Settled: then it may not know the Node. Making is called before the Node is made, and stops that with an error.
	// Settled is told that the control plane knows the Node, and whether it had to be made again. nil for never.
	Restored func(ctx context.Context) (bool, error)
	Making   func(ctx context.Context) error
	Settled  func(ctx context.Context, again bool)
	// Images lists the images on this node; nil reports none.
	Images func(ctx context.Context) ([]corev1.ContainerImage, error)

	// KubeletVersion is shown as the Node's version, like v1.37.2. KubeletPort is where the agent serves logs and exec.
	KubeletVersion string
	KubeletPort    int32

	// DataDir is on the disk that pods fill. CgroupRoot is the cgroup (as /everynode/n1) whose limits bound the node; ""
	// for none.
	DataDir    string
	CgroupRoot string
	// MaxPods is how many pods the node takes; the default is 110.
	MaxPods int64
	// Reserved is kept back for the system: allocatable is capacity less Reserved and less what Thresholds keep free.
	Reserved corev1.ResourceList
	// Thresholds say what is kept free.
	Thresholds eviction.Thresholds
	// Pressures are those that the node is under, nil while nobody knows: what the Node says of them stays then. Without
	// it there are none.
	Pressures func() []corev1.NodeConditionType
	// ImageFS finds a folder of the file system of images; nil for the one of DataDir.
	ImageFS func(ctx context.Context) (string, error)

	// Root is where /proc, /sys and /etc are found; the default is "/". For tests.
	Root string
	// Clock tells the time; the default is the real one.
	Clock clock.WithTicker
}

// Runtime is how a container runtime is.
type Runtime struct {
	// Name and Version, as containerd and 2.1.0.
	Name, Version string
	// Ready says that it can run containers, NetworkReady that it can connect them.
	Ready, NetworkReady Condition
	// StrictGroups says that it can keep the image's groups from a container.
	StrictGroups bool
	// Handlers are the ways in which it can run pods, as it tells.
	Handlers []corev1.NodeRuntimeHandler
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
	if c.NodeIPs == nil {
		c.NodeIPs = func() []net.IP { return nil }
	}
	if c.MaxPods == 0 {
		c.MaxPods = 110
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
	if c.LiveContent {
		labels[content.LiveName] = "true"
	}
	if c.FetchesImages {
		labels[fetch.Name] = "true"
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
	for name, amount := range capacity {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			// What is set aside for huge pages is no memory for anything else.
			keep(corev1.ResourceMemory, amount)
		}
	}
	for name, signal := range map[corev1.ResourceName]eviction.Signal{
		corev1.ResourceMemory: eviction.MemoryAvailable, corev1.ResourceEphemeralStorage: eviction.NodeFSAvailable,
	} {
		whole := capacity[name]
		keep(name, *resource.NewQuantity(c.Thresholds.Keep(signal, whole.Value()), resource.BinarySI))
	}
	return allocatable
}
