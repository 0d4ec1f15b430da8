package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/objects/nodestartup"
)

func TestDefaults(t *testing.T) {
	n := &corev1.Node{Status: corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}
	n.Spec.PodCIDRs = []string{"10.1.0.0/24"}
	SetDefaults(n)
	if n.Status.Allocatable.Cpu().String() != "2" || n.Spec.PodCIDR != "10.1.0.0/24" {
		t.Errorf("allocatable cpu is %s, podCIDR %s", n.Status.Allocatable.Cpu(), n.Spec.PodCIDR)
	}
	n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("1")
	if n.Status.Capacity.Cpu().String() != "2" {
		t.Error("capacity and allocatable are the same map")
	}
}

func TestIdentityStays(t *testing.T) {
	old := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}, ProviderID: "a"}}
	n := old.DeepCopy()
	n.Spec = corev1.NodeSpec{PodCIDR: "10.2.0.0/24", PodCIDRs: []string{"10.2.0.0/24"}, ProviderID: "b"}
	want := []string{
		`spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid`,
		`spec.providerID: Forbidden: node updates may not change providerID except from "" to valid`,
	}
	errs := ValidateUpdate(n, old)
	if len(errs) != 2 || errs[0].Error() != want[0] || errs[1].Error() != want[1] {
		t.Errorf("got %v, want %v", errs, want)
	}
	if errs := ValidateUpdate(old, &corev1.Node{}); len(errs) > 0 {
		t.Errorf("set for the first time: %v", errs)
	}
}

// A report changes nothing of the spec but the gate, and that only when the machine has started again.
func TestAReportClosesANodeOnly(t *testing.T) {
	gate := corev1.Taint{Key: nodestartup.TaintKey, Value: "a_1", Effect: corev1.TaintEffectNoSchedule}
	mine, theirs := corev1.Taint{Key: "mine"}, corev1.Taint{Key: "theirs"}
	for _, boot := range []string{"1", "2"} {
		old := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: "a", Taints: []corev1.Taint{mine}}}
		old.Status.NodeInfo.BootID = "1"
		n := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: "b", Unschedulable: true, Taints: []corev1.Taint{theirs, gate}}}
		n.Status.NodeInfo.BootID = boot
		prepareReport(n, old)
		want := []corev1.Taint{mine}
		if boot == "2" {
			want = append(want, gate)
		}
		if !slices.Equal(n.Spec.Taints, want) || n.Spec.ProviderID != "a" || n.Spec.Unschedulable {
			t.Errorf("started %s: the spec is %+v, want the taints %v", boot, n.Spec, want)
		}
	}
}

func TestSameAddressTwice(t *testing.T) {
	twice := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeExternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
	}}}
	want := `[status.addresses[2]: Duplicate value: {"type":"InternalIP","address":"10.0.0.1"}]`
	for when, errs := range map[string]field.ErrorList{"new": Validate(twice), "changed": ValidateUpdate(twice, twice)} {
		if got := fmt.Sprint(errs); got != want {
			t.Errorf("%s: got %s, want %s", when, got, want)
		}
	}
}

func TestRow(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ready := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	lost := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	for want, n := range map[string]corev1.Node{
		"[n Unknown <none> 60s  <none> <none> <unknown> <unknown> <unknown>]":  {},
		"[n NotReady <none> 60s  <none> <none> <unknown> <unknown> <unknown>]": {Status: corev1.NodeStatus{Conditions: lost}},
		"[n Ready,SchedulingDisabled control-plane,worker 60s v1.37.2 10.0.0.1 <none> Linux 6.1 (amd64) containerd://2]": {
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "worker"}},
			Spec:       corev1.NodeSpec{Unschedulable: true},
			Status: corev1.NodeStatus{Conditions: ready, Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
				NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.2", OSImage: "Linux", KernelVersion: "6.1", Architecture: "amd64", ContainerRuntimeVersion: "containerd://2"}},
		},
	} {
		n.Name, n.CreationTimestamp = "n", metav1.NewTime(now.Add(-time.Minute))
		if got := fmt.Sprint(row(&n, now)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
