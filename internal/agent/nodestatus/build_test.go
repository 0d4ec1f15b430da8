package nodestatus

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/agent/eviction"
)

var (
	noon      = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	goodReady = Runtime{Name: "containerd", Version: "2.1.0", Ready: Condition{OK: true}, NetworkReady: Condition{OK: true}}
)

func defaults() eviction.Thresholds {
	list, err := eviction.Parse(eviction.Default)
	if err != nil {
		panic(err)
	}
	return list
}

func testConfig() Config {
	return Config{
		NodeName: "n1", Hostname: "n1", NodeIPs: func() []net.IP { return []net.IP{net.ParseIP("10.0.0.1"), net.ParseIP("fd00::1")} },
		KubeletVersion: "v1.37.2", KubeletPort: 10250, Thresholds: defaults(),
		Reserved: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
}

func noAddress() []net.IP { return nil }

// A node's address follows the machine's; while nobody knows it, what the Node says of it stays.
func TestAddressesFollow(t *testing.T) {
	now := []net.IP{net.IPv4(10, 0, 0, 7)}
	c := testConfig()
	c.NodeIPs = func() []net.IP { return now }
	var status corev1.NodeStatus
	for _, step := range []struct {
		now  []net.IP
		want string
	}{{nil, ""}, {now, "10.0.0.7"}, {[]net.IP{net.IPv4(10, 0, 0, 9)}, "10.0.0.9"}, {nil, "10.0.0.9"}} {
		now = step.now
		status = build(c, status, facts{machine: testMachine()}, time.Unix(1, 0))
		got := ""
		for _, a := range status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				got += a.Address
			}
		}
		if got != step.want || len(status.Addresses) == 0 {
			t.Errorf("at %v the Node says %v, want %q", step.now, status.Addresses, step.want)
		}
	}
}

func testMachine() machine {
	return machine{
		capacity: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
			corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
		},
		info:   corev1.NodeSystemInfo{BootID: "boot-1", KernelVersion: "6.18"},
		memory: usage{8 << 30, 4 << 30}, disk: usage{100, 50}, inodes: usage{100, 50}, imageFS: usage{100, 50}, processes: usage{1000, 900},
	}
}

func conditionOf(status corev1.NodeStatus, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, condition := range status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return corev1.NodeCondition{}
}

func TestBuild(t *testing.T) {
	images := make([]corev1.ContainerImage, 60)
	for i := range images {
		images[i] = corev1.ContainerImage{SizeBytes: int64(i), Names: []string{"1", "2", "3", "4", "5", "6", "7"}}
	}
	foreign := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated"}
	old := corev1.NodeStatus{Conditions: []corev1.NodeCondition{foreign}, Phase: "kept"}
	got := build(testConfig(), old, facts{machine: testMachine(), runtime: goodReady, images: images}, noon)

	want := []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "InternalIP", Address: "fd00::1"}, {Type: "Hostname", Address: "n1"}}
	if !reflect.DeepEqual(got.Addresses, want) {
		t.Errorf("addresses %v", got.Addresses)
	}
	for name, want := range map[corev1.ResourceName]string{"cpu": "3900m", "memory": "7068Mi", "ephemeral-storage": "90Gi", "pods": "110"} {
		if quantity := got.Allocatable[name]; quantity.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("allocatable %s is %s, want %s", name, quantity.String(), want)
		}
	}
	if quantity := got.Capacity[corev1.ResourceMemory]; quantity.String() != "8Gi" {
		t.Errorf("what is reserved is missing from the capacity: %s", quantity.String())
	}
	info := got.NodeInfo
	if info.ContainerRuntimeVersion != "containerd://2.1.0" || info.KubeletVersion != "v1.37.2" || info.KernelVersion != "6.18" || got.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
		t.Errorf("info %+v, port %d", info, got.DaemonEndpoints.KubeletEndpoint.Port)
	}
	if len(got.Images) != 50 || got.Images[0].SizeBytes != 59 || len(got.Images[0].Names) != 5 || len(images[0].Names) != 7 {
		t.Errorf("%d images, the first of %d bytes with %d names", len(got.Images), got.Images[0].SizeBytes, len(got.Images[0].Names))
	}
	if conditionOf(got, corev1.NodeNetworkUnavailable) != foreign || got.Phase != "kept" {
		t.Error("what others wrote is lost")
	}
	kinds := ""
	for _, condition := range got.Conditions[1:] {
		kinds += fmt.Sprintf("%s=%s %s; ", condition.Type, condition.Status, condition.Reason)
	}
	if kinds != "MemoryPressure=False KubeletHasSufficientMemory; DiskPressure=False KubeletHasNoDiskPressure; PIDPressure=False KubeletHasSufficientPID; Ready=True KubeletReady; " {
		t.Errorf("conditions %s", kinds)
	}
	later := build(testConfig(), got, facts{machine: testMachine(), runtime: goodReady, images: images}, noon.Add(time.Hour))
	if !sameStatus(got, later) {
		t.Error("an hour later, with nothing changed, the status is another")
	}
	ready := conditionOf(later, corev1.NodeReady)
	if !ready.LastHeartbeatTime.Time.Equal(noon.Add(time.Hour)) || !ready.LastTransitionTime.Time.Equal(noon) {
		t.Errorf("heartbeat %v, transition %v", ready.LastHeartbeatTime, ready.LastTransitionTime)
	}
}

func TestReady(t *testing.T) {
	tests := []struct {
		name    string
		runtime Runtime
		err     error
		message string // "" when ready
	}{
		{"all well", goodReady, nil, ""},
		{"not asked", Runtime{}, errNotAsked, "container runtime status check may not have completed yet"},
		{"down", Runtime{}, errors.New("container runtime is down: refused"), "container runtime is down: refused"},
		{"no network", Runtime{Ready: Condition{OK: true}, NetworkReady: Condition{Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"}}, nil,
			"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"},
		{"neither", Runtime{Ready: Condition{Reason: "A", Message: "a"}, NetworkReady: Condition{Reason: "B", Message: "b"}}, nil,
			"[container runtime not ready: RuntimeReady=false reason:A message:a, container runtime network not ready: NetworkReady=false reason:B message:b]"},
	}
	for _, test := range tests {
		got := ready(facts{runtime: test.runtime, runtimeErr: test.err})
		if test.message == "" {
			if got.Status != corev1.ConditionTrue || got.Reason != "KubeletReady" || got.Message != "kubelet is posting ready status" {
				t.Errorf("%s: %+v", test.name, got)
			}
			continue
		}
		if got.Status != corev1.ConditionFalse || got.Reason != "KubeletNotReady" || got.Message != test.message {
			t.Errorf("%s: %+v, want not ready because %s", test.name, got, test.message)
		}
	}
}

func TestANodeWhoseAgentIsUnwellIsNotReady(t *testing.T) {
	got := ready(facts{runtime: goodReady, unhealthy: errors.New("PLEG is not healthy: it hangs")})
	if got.Status != corev1.ConditionFalse || got.Reason != "KubeletNotReady" || got.Message != "PLEG is not healthy: it hangs" {
		t.Errorf("it is %+v", got)
	}
}

func TestPressures(t *testing.T) {
	all := map[corev1.NodeConditionType][2]string{
		corev1.NodeMemoryPressure: {"KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"},
		corev1.NodeDiskPressure:   {"KubeletHasDiskPressure", "KubeletHasNoDiskPressure"},
		corev1.NodePIDPressure:    {"KubeletHasInsufficientPID", "KubeletHasSufficientPID"},
	}
	for under := range all {
		f := facts{machine: testMachine(), runtime: goodReady, pressures: []corev1.NodeConditionType{under}}
		status := build(testConfig(), corev1.NodeStatus{}, f, noon)
		for kind, reasons := range all {
			want, reason := corev1.ConditionFalse, reasons[1]
			if kind == under {
				want, reason = corev1.ConditionTrue, reasons[0]
			}
			if got := conditionOf(status, kind); got.Status != want || got.Reason != reason {
				t.Errorf("under %s: %+v, want %s because of %s", under, got, want, reason)
			}
		}
	}
}

func TestEvents(t *testing.T) {
	status := func(boot string, ready corev1.ConditionStatus) corev1.NodeStatus {
		return corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: boot}, Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: ready}, {Type: corev1.NodeNetworkUnavailable, Status: ready},
		}}
	}
	tests := []struct {
		name      string
		old, new  corev1.NodeStatus
		restarted bool
		want      []event
	}{
		{"nothing", status("b", "True"), status("b", "True"), true, nil},
		{"ready", status("b", "False"), status("b", "True"), false, []event{{"Normal", "NodeReady", "Node n1 status is now: NodeReady"}}},
		{"not ready", status("b", "True"), status("b", "False"), false, []event{{"Normal", "NodeNotReady", "Node n1 status is now: NodeNotReady"}}},
		{"first status", corev1.NodeStatus{}, status("b", "True"), true, []event{{"Normal", "NodeReady", "Node n1 status is now: NodeReady"}}},
		{"reboot", status("b", "True"), status("c", "True"), true, []event{{"Warning", "Rebooted", "Node n1 has been rebooted, boot id: c"}}},
	}
	for _, test := range tests {
		if got := events("n1", test.old, test.new, test.restarted); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: events %v, want %v", test.name, got, test.want)
		}
	}
}

// Memory that is set aside for huge pages is no memory for pods.
func TestHugePagesAreNoMemory(t *testing.T) {
	capacity := testMachine().capacity
	capacity["hugepages-2Mi"], capacity["hugepages-1Gi"] = resource.MustParse("512Mi"), resource.MustParse("1Gi")
	got := testConfig().allocatable(capacity)
	for name, want := range map[corev1.ResourceName]string{"memory": "5532Mi", "hugepages-2Mi": "512Mi", "hugepages-1Gi": "1Gi"} {
		if quantity := got[name]; quantity.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("allocatable %s is %s, want %s", name, quantity.String(), want)
		}
	}
}

func TestAllocatableIsNeverNegative(t *testing.T) {
	c := testConfig()
	c.Reserved = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Ti"), "unknown": resource.MustParse("1")}
	got := c.allocatable(testMachine().capacity)
	if quantity := got[corev1.ResourceMemory]; !quantity.IsZero() {
		t.Errorf("allocatable memory %s", quantity.String())
	}
	if _, ok := got["unknown"]; ok {
		t.Error("a resource that the machine lacks is allocatable")
	}
}

func TestSetCondition(t *testing.T) {
	var status corev1.NodeStatus
	setCondition(&status, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, noon)
	setCondition(&status, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse}, noon.Add(time.Minute))
	if got := status.Conditions[0].LastTransitionTime; len(status.Conditions) != 1 || !got.Equal(&metav1.Time{Time: noon.Add(time.Minute)}) {
		t.Errorf("conditions %v", status.Conditions)
	}
}

func TestNetworkCondition(t *testing.T) {
	known := func(network Condition) facts {
		return facts{machine: testMachine(), runtime: goodReady, network: &network}
	}
	status := build(testConfig(), corev1.NodeStatus{}, facts{machine: testMachine(), runtime: goodReady}, noon)
	if got := conditionOf(status, corev1.NodeNetworkUnavailable); got.Type != "" {
		t.Errorf("before anything is known the condition is %v", got)
	}
	status = build(testConfig(), status, known(Condition{Reason: "PodNetworkNotReady", Message: "no route"}), noon)
	if got := conditionOf(status, corev1.NodeNetworkUnavailable); got.Status != corev1.ConditionTrue || got.Message != "no route" {
		t.Errorf("a network that is not as it should be gives %v", got)
	}
	later := noon.Add(time.Minute)
	status = build(testConfig(), status, known(Condition{OK: true, Reason: "PodNetworkReady"}), later)
	if got := conditionOf(status, corev1.NodeNetworkUnavailable); got.Status != corev1.ConditionFalse || !got.LastTransitionTime.Time.Equal(later) {
		t.Errorf("when it is well again the condition is %v", got)
	}
}

// A node says that it shuts down from when it does to its next start. What somebody else says of that is his: he sets it
// and clears it.
func TestGracefulShutdown(t *testing.T) {
	const kind = corev1.NodeGracefulNodeShutdownInProgress
	at := func(seconds int, old corev1.NodeStatus, shuttingDown bool) corev1.NodeStatus {
		return build(testConfig(), old, facts{machine: testMachine(), runtime: goodReady, shuttingDown: shuttingDown},
			noon.Add(time.Duration(seconds)*time.Second))
	}
	status := at(0, corev1.NodeStatus{}, false)
	if got := conditionOf(status, kind); got.Type != "" {
		t.Errorf("one that has never shut down says %v", got)
	}
	down := at(10, at(5, status, true), true)
	got := conditionOf(down, kind)
	if got.Status != corev1.ConditionTrue || got.Reason != "ShuttingDown" || got.Message == "" ||
		!got.LastTransitionTime.Time.Equal(noon.Add(5*time.Second)) {
		t.Errorf("while it shuts down it says %+v", got)
	}
	up := at(90, at(60, down, false), false)
	got = conditionOf(up, kind)
	if got.Status != corev1.ConditionFalse || got.Reason != "Started" || !got.LastTransitionTime.Time.Equal(noon.Add(time.Minute)) {
		t.Errorf("after its next start it says %+v", got)
	}
	if got := conditionOf(at(100, up, true), kind); got.Status != corev1.ConditionTrue || got.Reason != "ShuttingDown" {
		t.Errorf("when it shuts down once more it says %+v", got)
	}
	theirs := corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "PowerWork", Message: "until Monday"}
	for _, shuttingDown := range []bool{true, false} {
		if got := conditionOf(at(9, corev1.NodeStatus{Conditions: []corev1.NodeCondition{theirs}}, shuttingDown), kind); got != theirs {
			t.Errorf("what somebody else said became %+v", got)
		}
	}
	theirs.Status = corev1.ConditionFalse
	if got := conditionOf(at(9, corev1.NodeStatus{Conditions: []corev1.NodeCondition{theirs}}, false), kind); got != theirs {
		t.Errorf("what somebody else cleared became %+v", got)
	}
}

// A clock that is wrong is told in few words, and that it is right only where it was wrong before.
func TestClockSkew(t *testing.T) {
	var status corev1.NodeStatus
	for i, step := range []struct {
		skew   time.Duration
		status corev1.ConditionStatus
		says   string
	}{
		{4 * time.Minute, "", ""},
		{-56 * 365 * 24 * time.Hour, corev1.ConditionTrue, "is behind that of the API server by 20440 days: set it"},
		{-56*365*24*time.Hour - time.Minute, corev1.ConditionTrue, "is behind that of the API server by 20440 days: set it"},
		{-4 * time.Minute, corev1.ConditionFalse, "is right"},
		{3 * time.Hour, corev1.ConditionTrue, "is ahead of that of the API server by 3 hours"},
		{6 * time.Minute, corev1.ConditionTrue, "by minutes"},
		{0, corev1.ConditionFalse, "is right"},
	} {
		status = build(testConfig(), status, facts{machine: testMachine(), runtime: goodReady, skew: step.skew}, noon)
		got := conditionOf(status, ClockSkew)
		if got.Status != step.status || !strings.Contains(got.Message, step.says) {
			t.Errorf("step %d: the condition is %v, want %q", i, got, step.says)
		}
	}
}

func TestPressuresThatNobodyKnowsStay(t *testing.T) {
	under := build(testConfig(), corev1.NodeStatus{}, facts{machine: testMachine(), runtime: goodReady, pressures: []corev1.NodeConditionType{corev1.NodeDiskPressure}}, noon)
	for _, tc := range []struct {
		pressures []corev1.NodeConditionType
		want      corev1.ConditionStatus
	}{{nil, corev1.ConditionTrue}, {[]corev1.NodeConditionType{}, corev1.ConditionFalse}} {
		got := build(testConfig(), under, facts{machine: testMachine(), runtime: goodReady, pressures: tc.pressures}, noon.Add(time.Minute))
		if c := conditionOf(got, corev1.NodeDiskPressure); c.Status != tc.want {
			t.Errorf("known are %v: %+v, want %s", tc.pressures, c, tc.want)
		}
	}
	if c := conditionOf(build(testConfig(), corev1.NodeStatus{}, facts{machine: testMachine()}, noon), corev1.NodeDiskPressure); c.Status != corev1.ConditionFalse {
		t.Errorf("a new node: %+v", c)
	}
}

func TestResourcesOfOthers(t *testing.T) {
	amount := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
	old := corev1.NodeStatus{Capacity: corev1.ResourceList{
		"memory": amount(1), "hugepages-2Mi": amount(1), "example.com/by-hand": amount(7), "example.com/widget": amount(9)}}
	f := facts{
		machine: machine{capacity: corev1.ResourceList{"memory": amount(4)}},
		devices: corev1.ResourceList{"example.com/widget": amount(3)}, usableDevices: corev1.ResourceList{"example.com/widget": amount(2)},
	}
	got := build(Config{NodeIPs: noAddress}, old, f, time.Unix(1, 0))
	for list, want := range map[*corev1.ResourceList]corev1.ResourceList{
		&got.Capacity:    {"memory": amount(4), "example.com/by-hand": amount(7), "example.com/widget": amount(3)},
		&got.Allocatable: {"memory": amount(4), "example.com/by-hand": amount(7), "example.com/widget": amount(2)},
	} {
		if !equality.Semantic.DeepEqual(*list, want) {
			t.Errorf("got %v, want %v", *list, want)
		}
	}
	f.forgotten, old.Capacity["kubernetes.io/foreign"] = true, amount(5)
	want := corev1.ResourceList{"memory": amount(4), "example.com/by-hand": amount(0), "example.com/widget": amount(3), "kubernetes.io/foreign": amount(5)}
	if got := build(Config{NodeIPs: noAddress}, old, f, time.Unix(1, 0)); !equality.Semantic.DeepEqual(got.Capacity, want) {
		t.Errorf("of a life that is forgotten remain %v, want %v", got.Capacity, want)
	}
	if len(f.machine.capacity) != 1 {
		t.Error("the machine's facts were changed")
	}
}
