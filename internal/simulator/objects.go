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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// readyMessage is what a healthy node says of itself.
const readyMessage = "simulated node is posting ready status"

// nodeObject is the node as it registers.
func nodeObject(config *Config, name string, number int, now time.Time) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname:   name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: runtime.GOARCH,
		SimulatedLabel:         "true",
	}
	maps.Copy(labels, config.Labels)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: slices.Clone(config.Taints)},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: nodeIP(number)},
				{Type: corev1.NodeHostName, Address: name},
			},
			Capacity:    maps.Clone(config.Capacity),
			Allocatable: maps.Clone(config.Capacity),
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: name, SystemUUID: name, BootID: name,
				KubeletVersion: config.Version, ContainerRuntimeVersion: "simulated://" + config.Version,
				OSImage: "Everynode simulated node", KernelVersion: "simulated",
				OperatingSystem: "linux", Architecture: runtime.GOARCH,
			},
		},
	}
	setHealthy(node, now)
	return node
}

// nodeIP makes up an address from a range that is reserved for networks inside a provider.
func nodeIP(number int) string {
	return netip.AddrFrom4([4]byte{100, byte(64 + number>>16), byte(number >> 8), byte(number)}).String()
}

// correct makes the node's status say what the node is and that all is well, and reports whether it said otherwise.
func correct(config *Config, node *corev1.Node, number int, now time.Time) (changed bool) {
	want := nodeObject(config, node.Name, number, now).Status
	status := &node.Status
	if !equality.Semantic.DeepEqual(status.Capacity, want.Capacity) || !equality.Semantic.DeepEqual(status.Allocatable, want.Allocatable) ||
		!slices.Equal(status.Addresses, want.Addresses) || !equality.Semantic.DeepEqual(status.NodeInfo, want.NodeInfo) {
		status.Capacity, status.Allocatable, status.Addresses, status.NodeInfo = want.Capacity, want.Allocatable, want.Addresses, want.NodeInfo
		changed = true
	}
	return setHealthy(node, now) || changed
}

// setHealthy makes the node's conditions say that all is well, and reports whether they said otherwise.
func setHealthy(node *corev1.Node, now time.Time) (changed bool) {
	at := metav1.NewTime(now)
	for _, want := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "simulated node has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "simulated node has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "simulated node has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: readyMessage},
	} {
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

// newAddresses hands out addresses of the node's range. For a node without one it makes up a range that belongs to nobody.
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
