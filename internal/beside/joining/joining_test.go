package joining

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// apply does with a patch what an API server does.
func apply(t *testing.T, n *corev1.Node, raw []byte) (*corev1.Node, error) {
	t.Helper()
	return fake.NewClientset(n).CoreV1().Nodes().Patch(t.Context(), n.Name, types.JSONPatchType, raw,
		metav1.PatchOptions{})
}

func startup(name string) *v1alpha1.NodeStartup {
	return &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.NodeStartupSpec{
		Gate: v1alpha1.GateJoin, Groups: []v1alpha1.StartupGroup{
			{DaemonSets: []v1alpha1.StartupDaemonSet{{Namespace: "n", Name: "cni"}}}}}}
}

func node(taints ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "u"}}
	for _, key := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: "s_1", Effect: corev1.TaintEffectNoSchedule})
	}
	return n
}

func keys(n *corev1.Node) (out []string) {
	for _, taint := range n.Spec.Taints {
		out = append(out, taint.Key)
	}
	return out
}

// TestJoin: a node is closed beside what it has, by the first NodeStartup that chooses it, or says why it is not.
func TestJoin(t *testing.T) {
	found := func(types.NamespacedName) plan.Standing { return plan.Found }
	barred := func(types.NamespacedName) plan.Standing { return plan.Barred }
	elsewhere := startup("a")
	elsewhere.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	both := []*v1alpha1.NodeStartup{startup("s"), elsewhere}
	annotated := node("other")
	annotated.Annotations = map[string]string{"mine": "stays"}
	for name, c := range map[string]struct {
		node     *corev1.Node
		all      []*v1alpha1.NodeStartup
		standing func(types.NamespacedName) plan.Standing
		taints   []string
		says     string
	}{
		"no taints":          {node(), both, found, []string{nodestartup.TaintKey}, ""},
		"with others":        {node("other", "not-ready"), both, found, []string{"other", "not-ready", nodestartup.TaintKey}, ""},
		"with annotations":   {annotated, both, found, []string{"other", nodestartup.TaintKey}, ""},
		"nobody's":           {node("other"), []*v1alpha1.NodeStartup{elsewhere}, found, []string{"other"}, ""},
		"closed by itself":   {node(nodestartup.TaintKey), both, found, []string{nodestartup.TaintKey}, ""},
		"a DaemonSet lacks":  {node("other"), both, barred, []string{"other"}, "NodeStartup s closes no node"},
		"there is none left": {node(), nil, found, nil, ""},
	} {
		raw, closed, err := Join(c.node, c.all, c.standing, now)
		if err != nil {
			t.Fatal(err)
		}
		got, err := apply(t, c.node, raw)
		if err != nil {
			t.Fatalf("%s: %s: %v", name, raw, err)
		}
		if !slices.Equal(keys(got), c.taints) || closed != (len(keys(got)) > len(keys(c.node))) {
			t.Errorf("%s: the taints are %v, want %v; closed is %v", name, keys(got), c.taints, closed)
		}
		if gate := nodestartup.TaintOf(got.Spec.Taints); closed && (gate.Value != "s_1" || gate.TimeAdded == nil) {
			t.Errorf("%s: it is closed with %+v", name, gate)
		}
		if mark, marked := nodestartup.MarkOf(got); !marked || mark != (nodestartup.Mark{}) {
			t.Errorf("%s: it is marked %v with %v", name, marked, mark)
		}
		if says := got.Annotations[nodestartup.NotClosedAnnotation]; (says == "") != (c.says == "") ||
			!strings.Contains(says, c.says) || got.Annotations["mine"] != c.node.Annotations["mine"] {
			t.Errorf("%s: the annotations are %v", name, got.Annotations)
		}
	}
}

// TestChangesHoldForWhatWasSeen: others' taints stay, and a Node that is another by now is left alone.
func TestChangesHoldForWhatWasSeen(t *testing.T) {
	gate := nodestartup.Gate(nodestartup.Place{Startup: "s", Group: 2}, v1alpha1.GateJoin, now)
	closed := node("before", nodestartup.TaintKey, "behind")
	closed.Annotations = map[string]string{nodestartup.MarkAnnotation: "uid/a", nodestartup.NotClosedAnnotation: "why",
		nodestartup.WithoutAnnotation: "n/x", "mine": "stays"}
	make := func(raw []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	again := plan.Due{Mark: nodestartup.Mark{Startup: "uid", BootID: "b"}, Gate: gate}
	for name, c := range map[string]struct {
		raw         []byte
		taints      []string
		annotations map[string]string
	}{
		"another group": {make(Regate(closed, gate, nil)), []string{"before", nodestartup.TaintKey, "behind"},
			closed.Annotations},
		"open, without some": {make(Regate(closed, nil, []string{"n/y"})), []string{"before", "behind"},
			with(closed.Annotations, nodestartup.WithoutAnnotation, "n/x,n/y")},
		"closed again": {make(Write(closed, again)), []string{"before", nodestartup.TaintKey, "behind"},
			with(with(without(closed.Annotations, nodestartup.NotClosedAnnotation), nodestartup.MarkAnnotation, "uid/b"),
				nodestartup.ClosedAnnotation, "2026-03-01T12:00:00Z")},
		"marked": {make(Write(closed, plan.Due{Mark: again.Mark, NotClosed: "because"})),
			[]string{"before", nodestartup.TaintKey, "behind"}, with(with(closed.Annotations, nodestartup.MarkAnnotation,
				"uid/b"), nodestartup.NotClosedAnnotation, "because")},
		"closed as it joins": {make(Write(closed, plan.Due{Mark: again.Mark, Gate: gate, While: &closed.Spec.Taints[2]})),
			[]string{"before", nodestartup.TaintKey, "behind"}, with(closed.Annotations, nodestartup.MarkAnnotation, "uid/b")},
		"left": {make(Leave(closed)), []string{"before", "behind"}, map[string]string{"mine": "stays"}},
	} {
		got, err := apply(t, closed, c.raw)
		if err != nil {
			t.Fatalf("%s: %s: %v", name, c.raw, err)
		}
		if !slices.Equal(keys(got), c.taints) || !maps.Equal(got.Annotations, c.annotations) {
			t.Errorf("%s: the taints are %v, want %v; the annotations are %v, want %v", name, keys(got), c.taints,
				got.Annotations, c.annotations)
		}
		another := closed.DeepCopy()
		another.UID = "v"
		moved := closed.DeepCopy()
		moved.Spec.Taints = slices.Insert(moved.Spec.Taints, 0, corev1.Taint{Key: "first"})
		for _, n := range []*corev1.Node{another, moved} {
			if got, err := apply(t, n, c.raw); err == nil && (n == another || name != "marked") {
				t.Errorf("%s: a node that is another by now becomes %v", name, keys(got))
			}
		}
	}
	joins := node("not-ready", "behind")
	raw := make(Write(joins, plan.Due{Mark: again.Mark, Gate: gate, While: &joins.Spec.Taints[0]}))
	if got, err := apply(t, joins, raw); err != nil || !slices.Equal(keys(got), []string{"not-ready", "behind", nodestartup.TaintKey}) {
		t.Errorf("a node that joins becomes %v, %v", keys(got), err)
	}
	if got, err := apply(t, node("behind"), raw); err == nil {
		t.Errorf("a node that takes pods by now becomes %v", keys(got))
	}
	marked := node()
	marked.Annotations = map[string]string{nodestartup.MarkAnnotation: "uid/c"}
	if _, err := apply(t, marked, make(Write(closed, again))); err == nil {
		t.Error("a node that somebody has marked meanwhile is marked once more")
	}
	bare := node()
	tainted, annotated := node("other"), node()
	annotated.Annotations = map[string]string{"mine": "stays"}
	for _, n := range []*corev1.Node{tainted, annotated} {
		if got, err := apply(t, n, make(Write(bare, again))); err == nil {
			t.Errorf("a node that was bare becomes %v with %v", keys(got), got.Annotations)
		}
	}
	if got, err := apply(t, bare, make(Write(bare, again))); err != nil || nodestartup.TaintOf(got.Spec.Taints) == nil {
		t.Errorf("a node that is bare is not closed again: %v", err)
	}
	if raw := make(Leave(node("other"))); raw != nil {
		t.Errorf("of a node that has nothing %s is taken off", raw)
	}
}

func with(have map[string]string, key, value string) map[string]string {
	out := maps.Clone(have)
	out[key] = value
	return out
}

func without(have map[string]string, key string) map[string]string {
	out := maps.Clone(have)
	delete(out, key)
	return out
}
