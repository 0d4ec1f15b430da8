package simulator

import (
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/simulator/illness"
)

// readyMessage is what a healthy node says of itself.
const readyMessage = "simulated node is posting ready status"

// nodeLabels are the labels of the node as it registers.
func nodeLabels(config *Config, name string, number int) map[string]string {
	labels := map[string]string{
		corev1.LabelHostname:   name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: runtime.GOARCH,
		SimulatedLabel:         "true",
		fetch.Name:             "true",
	}
	maps.Copy(labels, config.Labels)
	if config.Faults != nil {
		for _, l := range config.Faults.Labels {
			labels[l.Key] = l.Values[(number-1)%len(l.Values)]
		}
		if size := config.Faults.SizeOf(number); size != nil && size.Name != "" {
			labels[corev1.LabelInstanceTypeStable] = size.Name
		}
	}
	return labels
}

// nodeObject is the node as it registers.
func nodeObject(config *Config, name string, number int, state illness.State, now time.Time) *corev1.Node {
	capacity := maps.Clone(config.Capacity)
	if size := config.Faults.SizeOf(number); size != nil {
		maps.Copy(capacity, size.Amounts())
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: nodeLabels(config, name, number)},
		Spec:       corev1.NodeSpec{Taints: slices.Clone(config.Taints)},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: nodeIP(number)},
				{Type: corev1.NodeHostName, Address: name},
			},
			Capacity:    capacity,
			Allocatable: maps.Clone(capacity),
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: name, SystemUUID: name, BootID: name,
				KubeletVersion: config.Version, ContainerRuntimeVersion: "simulated://" + config.Version,
				OSImage: "Everynode simulated node", KernelVersion: "simulated",
				OperatingSystem: "linux", Architecture: runtime.GOARCH,
			},
		},
	}
	if state.Room != nil {
		offer(node.Status.Allocatable, state.Room)
	}
	setConditions(node, state, now)
	return node
}

// offer makes what a node offers as small as its room.
func offer(allocatable corev1.ResourceList, room *illness.Room) {
	for name, quantity := range map[corev1.ResourceName]*resource.Quantity{
		corev1.ResourceCPU: room.CPU, corev1.ResourceMemory: room.Memory, corev1.ResourcePods: room.Pods,
	} {
		if quantity != nil {
			allocatable[name] = *quantity
		}
	}
}

// nodeIP makes up an address from a range that is reserved for networks inside a provider.
func nodeIP(number int) string {
	return netip.AddrFrom4([4]byte{100, byte(64 + number>>16), byte(number >> 8), byte(number)}).String()
}

// correct makes the node's status say what the node is and how it is, and reports whether it said otherwise.
func correct(config *Config, node *corev1.Node, number int, state illness.State, now time.Time) (changed bool) {
	want := nodeObject(config, node.Name, number, state, now).Status
	status := &node.Status
	if !equality.Semantic.DeepEqual(status.Capacity, want.Capacity) ||
		!equality.Semantic.DeepEqual(status.Allocatable, want.Allocatable) ||
		!slices.Equal(status.Addresses, want.Addresses) || !equality.Semantic.DeepEqual(status.NodeInfo, want.NodeInfo) {
		status.Capacity, status.Allocatable = want.Capacity, want.Allocatable
		status.Addresses, status.NodeInfo = want.Addresses, want.NodeInfo
		changed = true
	}
	return setConditions(node, state, now) || changed
}

// conditions are what a node in that state says of itself.
func conditions(state illness.State) []corev1.NodeCondition {
	pressure := func(t corev1.NodeConditionType, short bool, what, well, ill string) corev1.NodeCondition {
		if short {
			return corev1.NodeCondition{
				Type:    t,
				Status:  corev1.ConditionTrue,
				Reason:  ill,
				Message: "simulated node has " + what + " pressure",
			}
		}
		return corev1.NodeCondition{
			Type:    t,
			Status:  corev1.ConditionFalse,
			Reason:  well,
			Message: "simulated node has no " + what + " pressure",
		}
	}
	ready := corev1.NodeCondition{
		Type:    corev1.NodeReady,
		Status:  corev1.ConditionTrue,
		Reason:  "KubeletReady",
		Message: readyMessage,
	}
	if state.NotReady != "" {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "KubeletNotReady", state.NotReady
	}
	return []corev1.NodeCondition{
		pressure(
			corev1.NodeMemoryPressure, state.Pressure.Memory, "memory", "KubeletHasSufficientMemory",
			"KubeletHasInsufficientMemory",
		),
		pressure(corev1.NodeDiskPressure, state.Pressure.Disk, "disk", "KubeletHasNoDiskPressure", "KubeletHasDiskPressure"),
		pressure(corev1.NodePIDPressure, state.Pressure.PID, "PID", "KubeletHasSufficientPID", "KubeletHasInsufficientPID"),
		ready,
	}
}

// simulatedMaintenance is the reason of a condition by which a simulated node is in maintenance, so that it takes none
// back that somebody else has set.
const simulatedMaintenance = "SimulatedFault"

// maintenance are the conditions by which the node is in maintenance in that state, or was until then.
func maintenance(node *corev1.Node, state illness.State) (out []corev1.NodeCondition) {
	for _, t := range illness.MaintenanceConditions {
		c := corev1.NodeCondition{Type: t, Reason: simulatedMaintenance, Status: corev1.ConditionFalse}
		was := slices.ContainsFunc(node.Status.Conditions, func(o corev1.NodeCondition) bool {
			return o.Type == t && o.Reason == simulatedMaintenance
		})
		switch m := state.Maintenance; {
		case m != nil && m.Condition == t:
			c.Status, c.Message = corev1.ConditionTrue, m.Message
		case !was:
			continue
		}
		out = append(out, c)
	}
	return out
}

// setConditions makes the node's conditions say how it is, and reports whether they said otherwise.
func setConditions(node *corev1.Node, state illness.State, now time.Time) (changed bool) {
	at := metav1.NewTime(now)
	for _, want := range append(conditions(state), maintenance(node, state)...) {
		want.LastHeartbeatTime, want.LastTransitionTime = at, at
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == want.Type })
		switch {
		case i < 0:
			node.Status.Conditions = append(node.Status.Conditions, want)
			changed = true
		case node.Status.Conditions[i].Status != want.Status:
			node.Status.Conditions[i] = want
			changed = true
		}
	}
	return changed
}

// healthy reports whether the node's conditions say that all is well.
func healthy(node *corev1.Node) bool {
	good := 0
	for i := range node.Status.Conditions {
		switch c := &node.Status.Conditions[i]; c.Type {
		case corev1.NodeReady:
			if c.Status == corev1.ConditionTrue {
				good++
			}
		case corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
			if c.Status == corev1.ConditionFalse {
				good++
			}
		}
	}
	return good == 4
}

// leaseObject is the lease of a node; it goes when the node goes.
func leaseObject(config *Config, node *corev1.Node, now time.Time) *coordinationv1.Lease {
	name, seconds, at := node.Name, int32(config.LeaseDuration/time.Second), metav1.NewMicroTime(now)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
}

// addresses hands out the addresses of one node's pods.
type addresses struct {
	prefix netip.Prefix
	last   netip.Addr
	used   map[netip.Addr]bool
}

// newAddresses hands out addresses of the node's range. For a node without one it makes up a range that belongs to
// nobody.
func newAddresses(podCIDR string, number int) (*addresses, error) {
	if podCIDR == "" {
		podCIDR = fmt.Sprintf("%d.%d.%d.0/24", 240+number>>16, byte(number>>8), byte(number))
	}
	prefix, err := netip.ParsePrefix(podCIDR)
	if err != nil {
		return nil, fmt.Errorf("read pod CIDR: %w", err)
	}
	// The network's own address and the bridge's are not handed out.
	return &addresses{prefix: prefix.Masked(), last: prefix.Masked().Addr().Next(), used: map[netip.Addr]bool{}}, nil
}

// take returns a free address. When all are taken it returns the next one all the same: nothing listens there.
func (a *addresses) take() string {
	first := a.prefix.Addr().Next()
	for range 1 << 16 {
		next := a.last.Next()
		if !a.prefix.Contains(next.Next()) { // the last one is for broadcasts
			next = first.Next()
		}
		a.last = next
		if !a.used[next] {
			break
		}
	}
	a.used[a.last] = true
	return a.last.String()
}

func (a *addresses) keep(ip string) {
	if address, err := netip.ParseAddr(ip); err == nil {
		a.used[address] = true
	}
}

func (a *addresses) give(ip string) {
	if address, err := netip.ParseAddr(ip); err == nil {
		delete(a.used, address)
	}
}
