package startups

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/action"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// fleet are nodes that start, the DaemonSets on them, and both cores: who makes daemons, and who opens nodes.
type fleet struct {
	*rapid.T
	book     *Book
	matrix   *recorded
	now      time.Time
	names    []string
	rules    map[string]*placement.Rules
	startups map[string]*v1alpha1.NodeStartup
	nodes    map[string]*corev1.Node
	pods     map[types.UID]*fact.Pod
	made     int
}

var dedicated = corev1.Taint{Key: "dedicated", Value: "db", Effect: corev1.TaintEffectNoSchedule}

// drawFleet makes up DaemonSets that want some nodes, and two NodeStartups that list them in orders of their own.
func drawFleet(t *rapid.T) *fleet {
	f := &fleet{T: t, matrix: &recorded{Matrix: matrix.New(row.Config{})}, now: start,
		rules: map[string]*placement.Rules{}, startups: map[string]*v1alpha1.NodeStartup{},
		nodes: map[string]*corev1.Node{}, pods: map[types.UID]*fact.Pod{}}
	f.book = New(f.matrix)
	f.book.Step(fact.Now{Time: f.now})
	f.names = []string{"cni", "storage", "logs", "gpu"}
	for _, name := range f.names {
		spec := corev1.PodSpec{}
		if class := drawClass(t); class != "" {
			spec.NodeSelector = map[string]string{"class": class}
		}
		if rapid.Bool().Draw(t, "tolerant") {
			spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
		e := daemonSet(name, spec.Tolerations...)
		f.rules[name] = placement.Compile(&spec)
		e.Placement = f.rules[name]
		e.Earlier = &placement.Revisions{ByRevision: map[string]*placement.Rules{"r": e.Placement}}
		f.book.Step(e)
	}
	for _, name := range []string{"a", "b"} {
		f.list(name)
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		f.nodes[n.Name] = n
		f.closes(n)
	}
	return f
}

func drawClass(t *rapid.T) string { return rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "class") }

// list has a NodeStartup list some DaemonSets, each in a group or together with others.
func (f *fleet) list(name string) {
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	sets := rapid.Permutation(f.names).Draw(f.T, "order")[:rapid.IntRange(1, len(f.names)).Draw(f.T, "listed")]
	for i, set := range sets {
		if i == 0 || rapid.Bool().Draw(f.T, "next group") {
			s.Spec.Groups = append(s.Spec.Groups, v1alpha1.StartupGroup{})
		}
		g := &s.Spec.Groups[len(s.Spec.Groups)-1]
		g.DaemonSets = append(g.DaemonSets, v1alpha1.StartupDaemonSet{Namespace: "ns", Name: set})
	}
	nodestartup.SetDefaults(&s.Spec)
	f.startups[name] = s
	f.book.Tell(s, false)
}

// closes has a node start, for the first time or again, as one of a NodeStartup.
func (f *fleet) closes(n *corev1.Node) {
	first := nodestartup.Place{Startup: rapid.SampledFrom([]string{"a", "b"}).Draw(f.T, "startup"), Group: 1}
	n.Spec.Taints = nodestartup.With(n.Spec.Taints, nodestartup.Gate(first, v1alpha1.GateJoin, f.now))
	f.book.Step(fact.OfNode(n))
}

func (f *fleet) sorted() []string { return slices.Sorted(maps.Keys(f.nodes)) }

// happens is something that changes where daemons run, how they are, or in which order they start.
func (f *fleet) happens() {
	n := f.nodes[rapid.SampledFrom(f.sorted()).Draw(f.T, "node")]
	switch rapid.IntRange(0, 5).Draw(f.T, "what") {
	case 0:
		n.Labels = map[string]string{"class": drawClass(f.T)}
	case 1:
		gate := nodestartup.TaintOf(n.Spec.Taints)
		n.Spec.Taints = nodestartup.With(nil, gate)
		if rapid.Bool().Draw(f.T, "dedicated") {
			n.Spec.Taints = append(n.Spec.Taints, dedicated)
		}
	case 2:
		f.list(rapid.SampledFrom([]string{"a", "b"}).Draw(f.T, "edited"))
	case 3:
		f.closes(n)
	case 4:
		for _, p := range f.on(n.Name, "") {
			p.Ready = false
			f.book.Step(*p)
		}
	default: // nothing but time
	}
	f.book.Step(fact.OfNode(n))
}

// on are the pods on a node of a DaemonSet, "" for all.
func (f *fleet) on(node, set string) (out []*fact.Pod) {
	for _, uid := range slices.Sorted(maps.Keys(f.pods)) {
		if p := f.pods[uid]; p.Node == node && (set == "" || string(p.Owner) == set) {
			out = append(out, p)
		}
	}
	return out
}

// goesOn lets both cores do what they want, and pods that were made before become ready.
func (f *fleet) goesOn() {
	f.now = f.now.Add(time.Second)
	f.book.Step(fact.Now{Time: f.now})
	for _, uid := range slices.Sorted(maps.Keys(f.pods)) {
		p := f.pods[uid]
		if !p.Ready {
			p.Ready, p.ReadySince = true, f.now
			f.book.Step(*p)
		}
	}
	for _, a := range f.matrix.Ready() {
		answer := action.Answer{Action: a, Outcome: action.OK}
		switch a := a.(type) {
		case *action.CreatePod:
			answer.Pod = f.create(a)
		case *action.DeletePod:
			delete(f.pods, a.PodUID)
			f.book.Step(fact.PodGone(a.PodUID))
		}
		f.book.Step(answer)
	}
	for _, name := range f.sorted() {
		f.opens(f.nodes[name])
	}
}

func (f *fleet) create(a *action.CreatePod) types.UID {
	if n := len(f.on(a.Node, string(a.UID))); n > 0 {
		f.Fatalf("node %s gets a daemon of %s, and has %d", a.Node, a.Name, n)
	}
	if gate := nodestartup.TaintOf(f.nodes[a.Node].Spec.Taints); gate != nil {
		at, _ := nodestartup.PlaceOf(gate.Value)
		listed := nodestartup.Listed(slices.Collect(maps.Values(f.startups)))
		for _, p := range listed[types.NamespacedName{Namespace: "ns", Name: a.Name}] {
			if p.Startup == at.Startup && p.Group > at.Group {
				f.Fatalf("at %s, node %s gets a daemon of %s", gate.Value, a.Node, a.Name)
			}
		}
	}
	f.made++
	p := &fact.Pod{UID: types.UID(fmt.Sprint("pod-", f.made)), Name: a.PodName, Owner: a.UID, Node: a.Node, Bound: true,
		BoundAt: f.now, Revision: a.Revision, Created: f.now}
	f.pods[p.UID] = p
	f.book.Step(*p)
	return p.UID
}

// opens leads a node on, and checks what it is like once it is open.
func (f *fleet) opens(n *corev1.Node) {
	gate := nodestartup.TaintOf(n.Spec.Taints)
	if gate == nil {
		return
	}
	place, _ := nodestartup.PlaceOf(gate.Value)
	s := f.startups[place.Startup]
	available := func(of types.NamespacedName) (d plan.Daemon) {
		d.Elsewhere = !plan.Runs(f.rules[of.Name], n)
		for _, p := range f.on(n.Name, of.Name) {
			if p.Ready {
				d.From = p.ReadySince
			}
		}
		return d
	}
	d := plan.Decide(s, gate, available, f.now)
	if !d.Changed {
		return
	}
	n.Spec.Taints = nodestartup.With(n.Spec.Taints, d.Gate)
	f.book.Step(fact.OfNode(n))
	for i := range s.Spec.Groups {
		for _, listed := range s.Spec.Groups[i].DaemonSets {
			if is := available(nodestartup.NameOf(listed)); d.Gate == nil && !is.Elsewhere && is.From.IsZero() {
				f.Fatalf("node %s opens without %s", n.Name, listed.Name)
			}
		}
	}
}

// Whatever is listed in whatever orders, by two NodeStartups, and however labels, taints, orders and daemons change: no
// node ever has two daemons of a DaemonSet, none comes before its group, and once nothing changes any more every node
// opens, and has exactly one ready daemon of each DaemonSet that is to run there.
func TestEveryNodeOpens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t)
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			f.happens()
			f.goesOn()
		}
		for range 40 {
			f.goesOn()
		}
		for _, name := range f.sorted() {
			n := f.nodes[name]
			if gate := nodestartup.TaintOf(n.Spec.Taints); gate != nil {
				t.Fatalf("node %s stays at %s", name, gate.Value)
			}
			for _, set := range f.names {
				verdict, _ := f.rules[set].Judge(n)
				if got := len(f.on(name, set)); verdict == placement.ShouldRun && got != 1 ||
					verdict == placement.ShouldNotRun && got != 0 {
					t.Fatalf("node %s has %d daemons of %s, which %s there", name, got, set, verdict)
				}
			}
		}
	})
}
