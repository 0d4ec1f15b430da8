package nodestartup

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
)

func group(names ...string) (g v1alpha1.StartupGroup) {
	for _, name := range names {
		g.DaemonSets = append(g.DaemonSets, v1alpha1.StartupDaemonSet{Namespace: "kube-system", Name: name})
	}
	return g
}

func TestWhatANodeStartupMustLookLike(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.NodeStartup)
		want   string // "" for none
	}{
		"as it is":       {func(*v1alpha1.NodeStartup) {}, ""},
		"no groups":      {func(s *v1alpha1.NodeStartup) { s.Spec.Groups = nil }, "spec.groups: Required"},
		"an empty group": {func(s *v1alpha1.NodeStartup) { s.Spec.Groups[1].DaemonSets = nil }, "spec.groups[1].daemonSets: Required"},
		"too many groups": {func(s *v1alpha1.NodeStartup) {
			for i := range MaxGroups {
				s.Spec.Groups = append(s.Spec.Groups, group(fmt.Sprint("d", i)))
			}
		}, "spec.groups: Too many"},
		"too many of a group": {func(s *v1alpha1.NodeStartup) {
			for i := range MaxDaemonSets {
				s.Spec.Groups[0].DaemonSets = append(s.Spec.Groups[0].DaemonSets, group(fmt.Sprint("d", i)).DaemonSets...)
			}
		}, "spec.groups[0].daemonSets: Too many"},
		"twice in a group":       {func(s *v1alpha1.NodeStartup) { s.Spec.Groups[0] = group("cni", "cni") }, "spec.groups[0].daemonSets[1]: Duplicate"},
		"in two groups":          {func(s *v1alpha1.NodeStartup) { s.Spec.Groups[1] = group("cni") }, "spec.groups[1].daemonSets[0]: Duplicate"},
		"no name":                {func(s *v1alpha1.NodeStartup) { s.Spec.Groups[0] = group("") }, "spec.groups[0].daemonSets[0].name: Required"},
		"no namespace":           {func(s *v1alpha1.NodeStartup) { s.Spec.Groups[0].DaemonSets[0].Namespace = "" }, "namespace: Required"},
		"a name that is none":    {func(s *v1alpha1.NodeStartup) { s.Spec.Groups[0] = group("A/b") }, "daemonSets[0].name: Invalid"},
		"a negative timeout":     {func(s *v1alpha1.NodeStartup) { s.Spec.Groups[0].Timeout = "-5m" }, "spec.groups[0].timeout: Invalid"},
		"no time at all":         {func(s *v1alpha1.NodeStartup) { s.Spec.Groups[0].Timeout = "0s" }, "spec.groups[0].timeout: Invalid"},
		"a timeout that is text": {func(s *v1alpha1.NodeStartup) { s.Spec.Groups[0].Timeout = "soon" }, "spec.groups[0].timeout: Invalid"},
		"Open without a timeout": {func(s *v1alpha1.NodeStartup) { s.Spec.Groups[0].Then = v1alpha1.ThenOpen }, "spec.groups[0].timeout: Required"},
		"another then":           {func(s *v1alpha1.NodeStartup) { s.Spec.Groups[0].Then = "Panic" }, "spec.groups[0].then: Unsupported"},
		"another gate":           {func(s *v1alpha1.NodeStartup) { s.Spec.Gate = "Continuous" }, "spec.gate: Unsupported"},
		"a long name":            {func(s *v1alpha1.NodeStartup) { s.Name = strings.Repeat("a", MaxName+1) }, "metadata.name: Too long"},
		"a bad selector": {func(s *v1alpha1.NodeStartup) {
			s.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": ""}}
		}, "spec.nodes.matchLabels: Invalid"},
	} {
		s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
		s.Spec.Groups = []v1alpha1.StartupGroup{group("cni"), group("logs")}
		c.change(s)
		SetDefaults(&s.Spec)
		errs := Validate(s)
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, errs, c.want)
		}
	}
}

// The value of a gate says where the node is, and fits into a taint for every name and group that are allowed.
func TestPlaces(t *testing.T) {
	for _, p := range []Place{{"a", 1}, {"my.startup-2", 12}, {strings.Repeat("a", MaxName), MaxGroups}} {
		if got, ok := PlaceOf(p.Value()); !ok || got != p {
			t.Errorf("%q is read as %v, %v", p.Value(), got, ok)
		}
		if problems := validation.IsValidLabelValue(p.Value()); len(problems) > 0 {
			t.Errorf("%q: %v", p.Value(), problems)
		}
	}
	for _, value := range []string{"", "a", "_1", "a_", "a_0", "a_01", "a_-1", "a_x"} {
		if p, ok := PlaceOf(value); ok {
			t.Errorf("%q is read as %v", value, p)
		}
	}
}

// A gate's time is never before the moment: no timeout ends early by what the API rounds off.
func TestGateIsRoundedUp(t *testing.T) {
	for _, at := range []time.Time{time.Unix(100, 0), time.Unix(100, 1), time.Unix(100, 999999999)} {
		got := Gate(Place{"a", 1}, v1alpha1.GateJoin, at).TimeAdded.Time
		if got.Before(at) || got.Sub(at) >= time.Second || got.Nanosecond() != 0 {
			t.Errorf("%v becomes %v", at, got)
		}
	}
}

func TestListed(t *testing.T) {
	a, b := &v1alpha1.NodeStartup{}, &v1alpha1.NodeStartup{}
	a.Name, b.Name = "a", "b"
	a.Spec.Groups = []v1alpha1.StartupGroup{group("cni"), group("logs")}
	b.Spec.Groups = []v1alpha1.StartupGroup{group("logs")}
	listed := Listed([]*v1alpha1.NodeStartup{b, a})
	got := listed[types.NamespacedName{Namespace: "kube-system", Name: "logs"}]
	if want := []Place{{"a", 2}, {"b", 1}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("logs is in %v, want %v", got, want)
	}
}

// The pods of a listed DaemonSet say in which group they start, and how long that waits for them if it goes on then. The
// first NodeStartup by name says it; what a template claims counts no more.
func TestPodsSayWhenTheyStart(t *testing.T) {
	a, b := &v1alpha1.NodeStartup{}, &v1alpha1.NodeStartup{}
	a.Name, b.Name = "a", "b"
	a.Spec.Groups = []v1alpha1.StartupGroup{group("cni"), group("logs"), group("late")}
	b.Spec.Groups = []v1alpha1.StartupGroup{group("logs"), group("own")}
	for i, then := range []v1alpha1.StartupThen{v1alpha1.ThenOpen, v1alpha1.ThenOpen, v1alpha1.ThenWait} {
		a.Spec.Groups[i].Timeout, a.Spec.Groups[i].Then = "90s", then
	}
	a.Spec.Groups[0].Then = v1alpha1.ThenWait
	turns := Turns(b, a)
	for name, want := range map[string]struct {
		group int
		after time.Duration
	}{"cni": {1, 0}, "logs": {2, 90 * time.Second}, "late": {3, 0}, "own": {2, 0}} {
		p := &corev1.Pod{}
		p.Annotations = map[string]string{GroupAnnotation: "9", TimeoutAnnotation: "7s", "mine": "stays"}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: name, Controller: new(true)}}
		turns[types.NamespacedName{Namespace: "kube-system", Name: name}].Annotate(&p.ObjectMeta)
		if g, after := GroupOf(p), OpensAfter(p); g != want.group || after != want.after || p.Annotations["mine"] != "stays" {
			t.Errorf("%s: group %d, which waits for %v; want %+v", name, g, after, want)
		}
	}
	for _, text := range []string{"", "soon", "-5s"} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{TimeoutAnnotation: text}}}
		if got := OpensAfter(p); got != 0 {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

// One in which a newer program wrote what nobody here knows chooses no node.
func TestANodeStartupOfANewerProgram(t *testing.T) {
	all := []*v1alpha1.NodeStartup{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}}}
	all[0].Annotations = map[string]string{newer.Annotation: "spec.zones"}
	if got := NewSet(all).Matching(nil); len(got) != 1 || got[0].Name != "b" {
		t.Errorf("a node follows %v", got)
	}
}
