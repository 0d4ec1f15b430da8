package plan

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

func after(seconds int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(seconds) * time.Second))
}

// daemonPod is ready since some seconds after the start of the tests.
func daemonPod(created, ready int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: after(created), OwnerReferences: []metav1.OwnerReference{{
			UID: "set", Controller: ptr.To(true)}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: after(ready)}}},
	}
}

func TestAvailableFrom(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", CreationTimestamp: after(100)}}
	readyNode := node.DeepCopy()
	readyNode.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastTransitionTime: after(110)}}
	unready, ending, others := daemonPod(100, 105), daemonPod(100, 105), daemonPod(100, 105)
	unready.Status.Conditions[0].Status = corev1.ConditionFalse
	ending.DeletionTimestamp = ptr.To(after(106))
	others.OwnerReferences[0].UID = "another"
	again := readyNode.DeepCopy()
	again.Annotations = map[string]string{nodestartup.ClosedAnnotation: start.Add(150 * time.Second).Format(time.RFC3339)}
	closing := readyNode.DeepCopy()
	closing.Annotations = map[string]string{nodestartup.ClosedAnnotation: start.Add(201 * time.Second).Format(time.RFC3339)}
	nonsense := node.DeepCopy()
	nonsense.Annotations = map[string]string{nodestartup.ClosedAnnotation: "yesterday"}
	for name, c := range map[string]struct {
		node     *corev1.Node
		pods     []*corev1.Pod
		minReady time.Duration
		want     metav1.Time // zero for never
	}{
		"ready":                         {node, []*corev1.Pod{daemonPod(100, 105)}, 0, after(105)},
		"for as long as it must be":     {node, []*corev1.Pod{daemonPod(100, 105)}, 10 * time.Second, after(115)},
		"not ready":                     {node, []*corev1.Pod{unready}, 0, metav1.Time{}},
		"on its way out":                {node, []*corev1.Pod{ending}, 0, metav1.Time{}},
		"another's":                     {node, []*corev1.Pod{others}, 0, metav1.Time{}},
		"the first of two":              {node, []*corev1.Pod{daemonPod(100, 120), daemonPod(100, 105)}, 0, after(105)},
		"a clock that is behind":        {node, []*corev1.Pod{daemonPod(103, 50)}, 0, after(103)},
		"a server's that was set back":  {node, []*corev1.Pod{daemonPod(9000, 150)}, 0, after(150)},
		"a clock that is ahead":         {node, []*corev1.Pod{daemonPod(103, 9000)}, 0, after(200)},
		"of an earlier node":            {node, []*corev1.Pod{daemonPod(10, 20)}, 0, metav1.Time{}},
		"of an earlier node, vouched":   {readyNode, []*corev1.Pod{daemonPod(10, 20)}, 0, after(140)},
		"of an earlier node, restarted": {node, []*corev1.Pod{daemonPod(10, 130)}, 0, after(130)},
		"of before the machine's start": {again, []*corev1.Pod{daemonPod(101, 105)}, 0, after(180)},
		"started again since":           {again, []*corev1.Pod{daemonPod(101, 155)}, 0, after(155)},
		"made since":                    {again, []*corev1.Pod{daemonPod(151, 155)}, 0, after(155)},
		"a clock ahead, closed later":   {closing, []*corev1.Pod{daemonPod(101, 9000)}, 0, after(200)},
		"a time that is none":           {nonsense, []*corev1.Pod{daemonPod(100, 105)}, 0, after(105)},
	} {
		got := AvailableFrom(c.node, c.pods, "set", c.minReady, start.Add(200*time.Second))
		if !got.Equal(c.want.Time) {
			t.Errorf("%s: from %v, want %v", name, got, c.want)
		}
	}
}

// A DaemonSet is waited for on the nodes that it is going to run on.
func TestRuns(t *testing.T) {
	rules := placement.Compile(&corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}})
	for name, c := range map[string]struct {
		disk   string
		taints []corev1.Taint
		want   bool
	}{
		"fits":           {"ssd", nil, true},
		"another label":  {"hdd", nil, false},
		"starts":         {"ssd", []corev1.Taint{{Key: "everynode.io/starting", Value: "s_1", Effect: "NoSchedule"}}, true},
		"not ready yet":  {"ssd", []corev1.Taint{{Key: "node.kubernetes.io/not-ready", Effect: "NoSchedule"}}, true},
		"is for others":  {"ssd", []corev1.Taint{{Key: "gpu", Effect: "NoSchedule"}}, false},
		"throws all out": {"ssd", []corev1.Taint{{Key: "gpu", Effect: "NoExecute"}}, false},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"disk": c.disk}}}
		n.Spec.Taints = c.taints
		if got := Runs(rules, n); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Who waits for a daemon that does not tolerate another taint of the node is told which: it may be the daemon itself
// that has it go.
func TestWhatKeepsADaemonFromComing(t *testing.T) {
	const network = "node.kubernetes.io/network-unavailable"
	dark := corev1.Taint{Key: network, Effect: corev1.TaintEffectNoSchedule}
	cni := corev1.Toleration{Key: network, Operator: corev1.TolerationOpExists}
	gate := *nodestartup.Gate(nodestartup.Place{Startup: "s", Group: 1}, v1alpha1.GateJoin, start)
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	s.Spec.Groups = []v1alpha1.StartupGroup{{DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "n", Name: "d"}}}}
	for name, c := range map[string]struct {
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		want        string
	}{
		"nothing": {nil, nil, "n/d"},
		"a taint": {[]corev1.Taint{dark}, nil, "n/d, which cannot come yet: taint " +
			network + ":NoSchedule is not tolerated"},
		"one that it bears": {[]corev1.Taint{dark}, []corev1.Toleration{cni}, "n/d"},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		n.Spec.Taints = append(c.taints, gate)
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: "set"}}
		rules := placement.Compile(&corev1.PodSpec{Tolerations: c.tolerations})
		d := Decide(s, &gate, func(types.NamespacedName) Daemon { return DaemonOf(n, ds, rules, nil, start) }, start)
		if got := Names(d.Waits); got != c.want {
			t.Errorf("kept by %s the node waits for %q, want %q", name, got, c.want)
		}
	}
}

// A DaemonSet that is on its way out counts as one that is gone, whatever its pods are.
func TestDaemonOf(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{UID: types.UID("set")}}
	rules := placement.Compile(&corev1.PodSpec{})
	pods := []*corev1.Pod{daemonPod(0, 0)}
	if d := DaemonOf(n, ds, rules, pods, start); d.Missing || d.Elsewhere || d.From != start {
		t.Errorf("it is %+v", d)
	}
	ds.DeletionTimestamp = ptr.To(after(0))
	if d := DaemonOf(n, ds, rules, pods, start); !d.Missing || d.Elsewhere || !d.From.IsZero() {
		t.Errorf("on its way out it is %+v", d)
	}
}
