package fit

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/fit/nodeaffinity"
	"github.com/everynode/everynode/internal/fit/resources"
)

// of asks about one rule.
func of(rule Rule, c *Cluster, pod *Pod, node *Node, trial Trial) (reasons []Reason) {
	for _, r := range c.Ask(pod).All(node, trial) {
		if r.Rule == rule {
			reasons = append(reasons, r)
		}
	}
	return reasons
}

// passes asks about one rule that looks at one node only, and expects a text and hopelessness if the node fails.
func passes(t *testing.T, rule Rule, pod *corev1.Pod, node *Node, text, about string) bool {
	t.Helper()
	reasons := of(rule, NewCluster(), NewPod(pod), node, Trial{})
	if len(reasons) > 0 && (len(reasons) > 1 || reasons[0].Text != text || reasons[0].About != about ||
		!reasons[0].Hopeless) {
		t.Errorf("node fails for %+v, want the hopeless reason %q about %q", reasons, text, about)
	}
	return len(reasons) == 0
}

func TestCordon(t *testing.T) {
	if !passes(t, Unschedulable, &corev1.Pod{}, &Node{}, TextUnschedulable, "") {
		t.Error("a node in use fails")
	}
	if passes(t, Unschedulable, &corev1.Pod{}, &Node{Unschedulable: true}, TextUnschedulable, "") {
		t.Error("a cordoned node passes")
	}
	daemon := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable,
		Operator: "Exists", Effect: "NoSchedule"}}}}
	if !passes(t, Unschedulable, daemon, &Node{Unschedulable: true}, TextUnschedulable, "") {
		t.Error("a cordoned node fails for a pod that tolerates that")
	}
}

func TestNameOfTheNode(t *testing.T) {
	named := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "a"}}
	if !passes(t, NodeName, &corev1.Pod{}, &Node{Name: "b"}, TextNodeName, "") ||
		!passes(t, NodeName, named, &Node{Name: "a"}, TextNodeName, "a") {
		t.Error("a node fails that the pod names, or that nobody names")
	}
	if passes(t, NodeName, named, &Node{Name: "b"}, TextNodeName, "a") {
		t.Error("a node passes that the pod does not name")
	}
}

func TestTaints(t *testing.T) {
	taint := func(key, value string, effect corev1.TaintEffect) []corev1.Taint {
		return []corev1.Taint{{Key: key, Value: value, Effect: effect}}
	}
	tests := []struct {
		name        string
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		passes      bool
	}{
		{"no taint", nil, nil, true},
		{"NoSchedule", taint("k", "", "NoSchedule"), nil, false},
		{"NoExecute", taint("k", "", "NoExecute"), nil, false},
		{"PreferNoSchedule only advises", taint("k", "", "PreferNoSchedule"), nil, true},
		{"exists", taint("k", "v", "NoSchedule"), []corev1.Toleration{{Key: "k", Operator: "Exists"}}, true},
		{"exists, other effect", taint("k", "v", "NoExecute"),
			[]corev1.Toleration{{Key: "k", Operator: "Exists", Effect: "NoSchedule"}}, false},
		{"exists, every key", taint("k", "v", "NoSchedule"), []corev1.Toleration{{Operator: "Exists"}}, true},
		{"equal", taint("k", "v", "NoSchedule"), []corev1.Toleration{{Key: "k", Value: "v"}}, true},
		{"not equal", taint("k", "v", "NoSchedule"), []corev1.Toleration{{Key: "k", Operator: "Equal", Value: "w"}},
			false},
		{"second of two not tolerated", append(taint("k", "", "NoSchedule"), taint("l", "", "NoSchedule")...),
			[]corev1.Toleration{{Key: "k", Operator: "Exists"}}, false},
		{"unknown operator", taint("k", "1", "NoSchedule"), []corev1.Toleration{{Key: "k", Operator: "Lt", Value: "2"}},
			false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: test.tolerations}}
			about := ""
			if n := len(test.taints); n > 0 {
				about = test.taints[n-1].ToString()
			}
			if got := passes(t, TaintToleration, pod, &Node{Taints: test.taints}, TextTaints,
				about); got != test.passes {
				t.Errorf("passes is %v, want %v", got, test.passes)
			}
		})
	}
}

type (
	nodeTerm    = corev1.NodeSelectorTerm
	requirement = corev1.NodeSelectorRequirement
)

func named(names ...string) requirement {
	return requirement{Key: "metadata.name", Operator: "In", Values: names}
}

func labelled(key, value string) requirement {
	return requirement{Key: key, Operator: "In", Values: []string{value}}
}

func requiring(selector map[string]string, terms ...nodeTerm) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: selector}}
	if terms != nil {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	return pod
}

func TestNamedNodes(t *testing.T) {
	tests := []struct {
		name  string
		terms []nodeTerm
		want  []string
		named bool
	}{
		{"no affinity", nil, nil, false},
		{"daemon pod", []nodeTerm{{MatchFields: []requirement{named("a")}}}, []string{"a"}, true},
		{"alternatives", []nodeTerm{{MatchFields: []requirement{named("a")}}, {MatchFields: []requirement{named("b")}},
			{MatchFields: []requirement{named("a")}}}, []string{"a", "b"}, true},
		{"one alternative is open", []nodeTerm{{MatchFields: []requirement{named("a")}},
			{MatchExpressions: []requirement{labelled("x", "y")}}}, nil, false},
		{"name and label", []nodeTerm{{MatchFields: []requirement{named("a")},
			MatchExpressions: []requirement{labelled("x", "y")}}}, []string{"a"}, true},
		{"two names at once", []nodeTerm{{MatchFields: []requirement{named("a"), named("b")}}}, nil, true},
		{"not that one", []nodeTerm{{MatchFields: []requirement{{Key: "metadata.name", Operator: "NotIn",
			Values: []string{"a"}}}}}, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, named := nodeaffinity.Names(&requiring(nil, test.terms...).Spec)
			if !slices.Equal(got, test.want) || named != test.named {
				t.Errorf("NamedNodes() = %v, %v, want %v, %v", got, named, test.want, test.named)
			}
		})
	}
}

func TestNodeAffinity(t *testing.T) {
	node := &Node{Name: "a", Labels: map[string]string{"disk": "ssd", "cpus": "8"}}
	expression := func(key string, operator corev1.NodeSelectorOperator, values ...string) nodeTerm {
		return nodeTerm{MatchExpressions: []requirement{{Key: key, Operator: operator, Values: values}}}
	}
	tests := []struct {
		name   string
		pod    *corev1.Pod
		passes bool
	}{
		{"selector", requiring(map[string]string{"disk": "ssd"}), true},
		{"selector differs", requiring(map[string]string{"disk": "hdd"}), false},
		{"own name", requiring(nil, nodeTerm{MatchFields: []requirement{named("a")}}), true},
		{"other name", requiring(nil, nodeTerm{MatchFields: []requirement{named("b")}}), false},
		{"own name, selector differs", requiring(map[string]string{"disk": "hdd"},
			nodeTerm{MatchFields: []requirement{named("a")}}), false},
		{"not this name", requiring(nil, nodeTerm{MatchFields: []requirement{{Key: "metadata.name", Operator: "NotIn",
			Values: []string{"a"}}}}), false},
		{"one of two alternatives", requiring(nil, expression("disk", "In", "hdd"), expression("disk", "In", "ssd")),
			true},
		{"exists", requiring(nil, expression("disk", "Exists")), true},
		{"does not exist", requiring(nil, expression("disk", "DoesNotExist")), false},
		{"greater", requiring(nil, expression("cpus", "Gt", "4")), true},
		{"empty nodeTerm matches nothing", requiring(nil, nodeTerm{}), false},
		{"unreadable", requiring(nil, expression("disk", "Near", "ssd")), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := passes(t, NodeAffinity, test.pod, node, TextNodeAffinity, ""); got != test.passes {
				t.Errorf("passes is %v, want %v", got, test.passes)
			}
		})
	}
}

func TestRoom(t *testing.T) {
	gpu := func(n int64) map[corev1.ResourceName]int64 {
		return map[corev1.ResourceName]int64{"example.com/gpu": n}
	}
	offers := resources.Amounts{MilliCPU: 1000, Memory: 1000, EphemeralStorage: 1000, Scalar: gpu(2)}
	used := resources.Amounts{MilliCPU: 600, Memory: 600, EphemeralStorage: 600, Scalar: gpu(1)}
	tests := []struct {
		name     string
		request  resources.Amounts
		pods     int
		allowed  int
		reasons  []string
		hopeless bool
	}{
		{"fits exactly", resources.Amounts{MilliCPU: 400, Memory: 400, EphemeralStorage: 400, Scalar: gpu(1)}, 1, 2,
			nil, false},
		{"cpu", resources.Amounts{MilliCPU: 401}, 1, 9, []string{"Insufficient cpu"}, false},
		{"memory, more than the node has", resources.Amounts{Memory: 1001}, 1, 9, []string{"Insufficient memory"},
			true},
		{"storage", resources.Amounts{EphemeralStorage: 401}, 1, 9, []string{"Insufficient ephemeral-storage"}, false},
		{"extended", resources.Amounts{Scalar: gpu(2)}, 1, 9, []string{"Insufficient example.com/gpu"}, false},
		{"extended that the node does not have", resources.Amounts{Scalar: map[corev1.ResourceName]int64{"example.com/tpu": 1}}, 1, 9,
			[]string{"Insufficient example.com/tpu"}, true},
		{"all that lack are named", resources.Amounts{MilliCPU: 500, Memory: 500}, 3, 3,
			[]string{"Too many pods", "Insufficient cpu", "Insufficient memory"}, false},
		{"no request, full node", resources.Amounts{}, 3, 3, []string{"Too many pods"}, false},
		{"no request", resources.Amounts{}, 2, 3, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			node := &Node{Allocatable: offers, Requested: used, AllowedPods: test.allowed, Pods: map[types.UID]*Pod{}}
			for i := range test.pods {
				node.Pods[types.UID(rune('a'+i))] = &Pod{}
			}
			var texts []string
			hopeless := false
			for _, r := range of(Room, NewCluster(), &Pod{Object: &corev1.Pod{}, Requests: test.request,
				readable: true}, node, Trial{}) {
				texts, hopeless = append(texts, r.Text), hopeless || r.Hopeless
				if r.Wanted <= r.Free || r.About == "" {
					t.Errorf("reason %+v does not say of what more is wanted than free", r)
				}
			}
			if !slices.Equal(texts, test.reasons) || hopeless != test.hopeless {
				t.Errorf("reasons are %v, hopeless %v, want %v, %v", texts, hopeless, test.reasons, test.hopeless)
			}
		})
	}
}

func TestHostPorts(t *testing.T) {
	pod := func(name string, port int32) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
			Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: port}}}}},
		}
	}
	c := NewCluster()
	c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	holder := pod("holder", 80)
	c.SetPod(holder)
	for _, free := range []int32{0, 81} {
		if reasons := of(HostPortsFree, c, NewPod(pod("other", free)), c.Node("n"), Trial{}); reasons != nil {
			t.Errorf("free port %d fails: %v", free, reasons)
		}
	}
	want := []Reason{{Rule: HostPortsFree, Text: TextPorts, About: "80/TCP"}}
	if reasons := of(HostPortsFree, c, NewPod(pod("same", 80)), c.Node("n"), Trial{}); !slices.Equal(reasons, want) {
		t.Errorf("a taken port gives %+v, want %+v: removing its holder frees it", reasons, want)
	}
	if reasons := of(HostPortsFree, c, NewPod(pod("same", 80)), c.Node("n"),
		Trial{Removed: []*Pod{NewPod(holder)}}); reasons != nil {
		t.Errorf("a port whose holder leaves fails: %+v", reasons)
	}
}

func TestDisks(t *testing.T) {
	gce := func(name string, readOnly bool) corev1.VolumeSource {
		return corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: name,
			ReadOnly: readOnly}}
	}
	aws := corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "v",
		ReadOnly: true}}
	rbd := func(image string, readOnly bool, monitors ...string) corev1.VolumeSource {
		return corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{CephMonitors: monitors, RBDPool: "p", RBDImage: image,
			ReadOnly: readOnly}}
	}
	iscsi := func(iqn string, readOnly bool) corev1.VolumeSource {
		return corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{IQN: iqn, ReadOnly: readOnly}}
	}
	for _, test := range []struct {
		name         string
		used, wanted corev1.VolumeSource
		free         bool
	}{
		{"same disk", gce("d", false), gce("d", false), false},
		{"other disk", gce("d", false), gce("e", false), true},
		{"both read", gce("d", true), gce("d", true), true},
		{"one writes", gce("d", true), gce("d", false), false},
		{"of a kind that nobody shares", aws, aws, false},
		{"of the same name in another kind", gce("v", false), aws, true},
		{"target", iscsi("i", false), iscsi("i", true), false},
		{"target that both read", iscsi("i", true), iscsi("i", true), true},
		{"image with a monitor in common", rbd("i", false, "a", "b"), rbd("i", false, "b", "c"), false},
		{"image of another cluster", rbd("i", false, "a"), rbd("i", false, "b"), true},
		{"other image", rbd("i", false, "a"), rbd("j", false, "a"), true},
		{"a folder", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
			corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := func(uid types.UID, v corev1.VolumeSource) *corev1.Pod {
				return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid},
					Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{{VolumeSource: v}}}}
			}
			c := NewCluster()
			c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
			c.SetPod(pod("used", test.used))
			reasons := of(Disks, c, NewPod(pod("wanted", test.wanted)), c.Node("n"), Trial{})
			if free := len(reasons) == 0; free != test.free {
				t.Errorf("free is %v, want %v", free, test.free)
			}
		})
	}
}
