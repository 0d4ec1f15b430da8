package nodestatus

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

const (
	// maxImages and maxNames bound the list of images on a Node.
	maxImages = 50
	maxNames  = 5
)

// facts is everything that a status is made of.
type facts struct {
	machine    machine
	runtime    Runtime
	runtimeErr error // the runtime can't be reached, or hasn't been asked yet
	images     []corev1.ContainerImage
	// pressures are those that the node is under; nil while nobody knows.
	pressures []corev1.NodeConditionType
	// devices and usableDevices are the resources of device plugins.
	devices, usableDevices corev1.ResourceList
	// forgotten says that what the Node says of resources in a domain of their own is of plugins that nobody knows any
	// more.
	forgotten bool
	// shuttingDown says that the node ends its pods.
	shuttingDown bool
	// unhealthy is what keeps the agent from running pods; nil for nothing.
	unhealthy error
	network   *Condition // nil while nothing is to be said about it
	// skew is how far the machine's clock is ahead of the API server's.
	skew time.Duration
}

// build makes the new status. Of old it keeps what others wrote, and the times of transitions that didn't happen.
func build(c Config, old corev1.NodeStatus, f facts, now time.Time) corev1.NodeStatus {
	status := *old.DeepCopy()
	if ips := c.NodeIPs(); len(ips) > 0 || len(old.Addresses) == 0 {
		status.Addresses = addresses(ips, c.Hostname)
	}
	status.Capacity = withForeign(f.machine.capacity, old.Capacity, f.forgotten)
	maps.Copy(status.Capacity, f.devices)
	status.Allocatable = c.allocatable(status.Capacity)
	maps.Copy(status.Allocatable, f.usableDevices)
	status.DaemonEndpoints.KubeletEndpoint.Port = c.KubeletPort
	status.NodeInfo = f.machine.info
	status.NodeInfo.KubeletVersion = c.KubeletVersion
	if f.runtime.Name != "" {
		status.NodeInfo.ContainerRuntimeVersion = f.runtime.Name + "://" + f.runtime.Version
		status.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: &f.runtime.StrictGroups}
		status.RuntimeHandlers = f.runtime.Handlers
	} else {
		status.NodeInfo.ContainerRuntimeVersion = old.NodeInfo.ContainerRuntimeVersion
	}
	if f.images != nil {
		status.Images = shortList(f.images)
	}
	for _, condition := range conditions(f) {
		if f.pressures == nil && condition.Type != corev1.NodeReady && has(old, condition.Type) {
			continue
		}
		setCondition(&status, condition, now)
	}
	if f.network != nil {
		setCondition(&status, networkUnavailable(*f.network), now)
	}
	tellShutdown(&status, f.shuttingDown, now)
	if wrong := clockSkew(f.skew); wrong.Status == corev1.ConditionTrue || has(old, ClockSkew) {
		setCondition(&status, wrong, now)
	}
	return status
}

// shutsDown and hasStarted are the reasons by which a node knows what it said of its shutdown from what others say.
const (
	shutsDown  = "ShuttingDown"
	hasStarted = "Started"
)

// tellShutdown says that the node ends its pods, and after its next start that it does not. One that somebody else has
// set is left to him: an agent that starts does not know what it was set for.
func tellShutdown(status *corev1.NodeStatus, shuttingDown bool, now time.Time) {
	const kind = corev1.NodeGracefulNodeShutdownInProgress
	at := slices.IndexFunc(status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	is := at >= 0 && status.Conditions[at].Status == corev1.ConditionTrue
	own := at >= 0 && (status.Conditions[at].Reason == shutsDown || status.Conditions[at].Reason == hasStarted)
	switch {
	case shuttingDown && (own || !is):
		setCondition(status, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: shutsDown,
			Message: "the machine goes down, and the agent ends its pods in order"}, now)
	case !shuttingDown && own:
		setCondition(status, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: hasStarted,
			Message: "the agent has started again"}, now)
	}
}

// withForeign adds to the machine's capacity what somebody else says that the node has: resources in a domain of their
// own. With forgotten it has none of those outside Kubernetes' domain until somebody says so again.
func withForeign(own, old corev1.ResourceList, forgotten bool) corev1.ResourceList {
	out := own.DeepCopy()
	for name, amount := range old {
		if _, ok := out[name]; ok || !strings.Contains(string(name), "/") {
			continue
		}
		if forgotten && !strings.Contains(string(name), "kubernetes.io/") {
			amount = resource.Quantity{Format: amount.Format}
		}
		out[name] = amount
	}
	return out
}

// networkUnavailable is the one condition that is good when it is false and keeps pods without the node's network away.
func networkUnavailable(network Condition) corev1.NodeCondition {
	status := corev1.ConditionTrue
	if network.OK {
		status = corev1.ConditionFalse
	}
	return corev1.NodeCondition{
		Type:    corev1.NodeNetworkUnavailable,
		Status:  status,
		Reason:  network.Reason,
		Message: network.Message,
	}
}

const (
	// ClockSkew is the condition of a node whose clock is wrong. One whose clock has always been right has none.
	ClockSkew corev1.NodeConditionType = "ClockSkew"
	// skewFrom is from when on a clock counts as wrong.
	skewFrom = 5 * time.Minute
)

func clockSkew(skew time.Duration) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: ClockSkew, Status: corev1.ConditionFalse, Reason: "ClockInSync",
		Message: "the clock of this machine is right by that of the API server"}
	// What is said of it is round, so that it is not written again and again.
	about := "minutes"
	switch hours := skew.Abs() / time.Hour; {
	case hours >= 48:
		about = fmt.Sprint(int(hours/24), " days")
	case hours >= 2:
		about = fmt.Sprint(int(hours), " hours")
	}
	switch {
	case skew <= -skewFrom:
		c.Status, c.Reason = corev1.ConditionTrue, "ClockBehind"
		c.Message = "the clock of this machine is behind that of the API server by " + about +
			": set it; until then certificates are not renewed, and times of pods and logs are wrong"
	case skew >= skewFrom:
		c.Status, c.Reason = corev1.ConditionTrue, "ClockAhead"
		c.Message = "the clock of this machine is ahead of that of the API server by " + about +
			": set it, if the API server's is right; times of pods and logs are wrong"
	}
	return c
}

func addresses(ips []net.IP, hostname string) []corev1.NodeAddress {
	list := make([]corev1.NodeAddress, 0, len(ips)+1)
	for _, ip := range ips {
		list = append(list, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	return append(list, corev1.NodeAddress{Type: corev1.NodeHostName, Address: hostname})
}

// conditions are the node's four conditions in the kubelet's order and words.
func conditions(f facts) []corev1.NodeCondition {
	pressure := func(kind corev1.NodeConditionType, bad, badText, good, goodText string) corev1.NodeCondition {
		if slices.Contains(f.pressures, kind) {
			return corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: bad, Message: badText}
		}
		return corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: good, Message: goodText}
	}
	return []corev1.NodeCondition{
		pressure(corev1.NodeMemoryPressure, "KubeletHasInsufficientMemory", "kubelet has insufficient memory available",
			"KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		pressure(corev1.NodeDiskPressure, "KubeletHasDiskPressure", "kubelet has disk pressure",
			"KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		pressure(corev1.NodePIDPressure, "KubeletHasInsufficientPID", "kubelet has insufficient PID available",
			"KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		ready(f),
	}
}

func ready(f facts) corev1.NodeCondition {
	var problems []error
	if f.shuttingDown {
		problems = append(problems, errors.New("node is shutting down"))
	}
	if f.unhealthy != nil {
		problems = append(problems, f.unhealthy)
	}
	if f.runtimeErr != nil {
		problems = append(problems, f.runtimeErr)
	} else {
		if r := f.runtime.Ready; !r.OK {
			problems = append(problems, fmt.Errorf(
				"container runtime not ready: RuntimeReady=false reason:%s message:%s", r.Reason, r.Message,
			))
		}
		if r := f.runtime.NetworkReady; !r.OK {
			problems = append(problems, fmt.Errorf(
				"container runtime network not ready: NetworkReady=false reason:%s message:%s", r.Reason, r.Message,
			))
		}
	}
	if err := utilerrors.NewAggregate(problems); err != nil {
		return corev1.NodeCondition{
			Type:    corev1.NodeReady,
			Status:  corev1.ConditionFalse,
			Reason:  "KubeletNotReady",
			Message: err.Error(),
		}
	}
	return corev1.NodeCondition{
		Type:    corev1.NodeReady,
		Status:  corev1.ConditionTrue,
		Reason:  "KubeletReady",
		Message: "kubelet is posting ready status",
	}
}

// errNotAsked stands for the runtime's answer before it was asked.
var errNotAsked = errors.New("container runtime status check may not have completed yet")

func has(status corev1.NodeStatus, kind corev1.NodeConditionType) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
}

func setCondition(status *corev1.NodeStatus, condition corev1.NodeCondition, now time.Time) {
	condition.LastHeartbeatTime = metav1.NewTime(now)
	condition.LastTransitionTime = metav1.NewTime(now)
	for i := range status.Conditions {
		if status.Conditions[i].Type != condition.Type {
			continue
		}
		if status.Conditions[i].Status == condition.Status {
			condition.LastTransitionTime = status.Conditions[i].LastTransitionTime
		}
		status.Conditions[i] = condition
		return
	}
	status.Conditions = append(status.Conditions, condition)
}

// shortList keeps the biggest images and a few names of each.
func shortList(images []corev1.ContainerImage) []corev1.ContainerImage {
	list := make([]corev1.ContainerImage, len(images))
	copy(list, images)
	sort.SliceStable(list, func(i, j int) bool { return list[i].SizeBytes > list[j].SizeBytes })
	list = list[:min(len(list), maxImages)]
	for i := range list {
		list[i].Names = list[i].Names[:min(len(list[i].Names), maxNames)]
	}
	return list
}

// event is something to tell about the node.
type event struct{ kind, reason, message string }

// events are the changes between two statuses that are worth an event. restarted is true for the agent's first status.
func events(nodeName string, old, new corev1.NodeStatus, restarted bool) []event {
	var list []event
	reasons := map[corev1.NodeConditionType][2]string{
		corev1.NodeReady:          {"NodeReady", "NodeNotReady"},
		corev1.NodeMemoryPressure: {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
		corev1.NodeDiskPressure:   {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		ClockSkew:                 {"ClockIsWrong", "ClockIsRight"},
		corev1.NodePIDPressure:    {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
	}
	before := map[corev1.NodeConditionType]corev1.ConditionStatus{}
	for _, condition := range old.Conditions {
		before[condition.Type] = condition.Status
	}
	for _, condition := range new.Conditions {
		names, ok := reasons[condition.Type]
		if !ok || before[condition.Type] == condition.Status {
			continue
		}
		reason := names[0]
		if condition.Status != corev1.ConditionTrue {
			reason = names[1]
		}
		list = append(list, event{corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", nodeName, reason)})
	}
	if restarted && old.NodeInfo.BootID != "" && old.NodeInfo.BootID != new.NodeInfo.BootID {
		list = append(list, event{corev1.EventTypeWarning, "Rebooted",
			fmt.Sprintf("Node %s has been rebooted, boot id: %s", nodeName, new.NodeInfo.BootID)})
	}
	return list
}

// sameStatus reports whether two statuses differ at most in the times of heartbeats.
func sameStatus(a, b corev1.NodeStatus) bool {
	a, b = *a.DeepCopy(), *b.DeepCopy()
	for _, status := range []*corev1.NodeStatus{&a, &b} {
		for i := range status.Conditions {
			status.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return equal(a, b)
}
