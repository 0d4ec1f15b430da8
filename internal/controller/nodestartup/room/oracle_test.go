package room

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// stored is a reader of objects that a test changes, which copies them shallowly, as a cache does.
type stored struct {
	startups map[string]*v1alpha1.NodeStartup
	sets     map[types.NamespacedName]*appsv1.DaemonSet
	classes  []schedulingv1.PriorityClass
	reads    int
}

func (s *stored) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	s.reads++
	switch into := into.(type) {
	case *v1alpha1.NodeStartup:
		if one := s.startups[key.Name]; one != nil {
			*into = *one
			return nil
		}
	case *appsv1.DaemonSet:
		if one := s.sets[key]; one != nil {
			*into = *one
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: reflect.TypeOf(into).String()}, key.Name)
}

func (s *stored) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if classes, is := into.(*schedulingv1.PriorityClassList); is {
		classes.Items = s.classes
	}
	return nil
}

// naive is ToCome without anything kept in mind.
func naive(t *testing.T, s *stored, n *fit.Node) (out []string) {
	t.Helper()
	gate := nodestartup.TaintOf(n.Taints)
	if gate == nil {
		return nil
	}
	at, _ := nodestartup.PlaceOf(gate.Value)
	startup := s.startups[at.Startup]
	if startup == nil {
		return nil
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}, Spec: corev1.NodeSpec{Taints: n.Taints}}
	taken, pods := n.Requested.Clone(), len(n.Pods)
	for i := max(at.Group-1, 0); i < len(startup.Spec.Groups); i++ {
		for _, listed := range startup.Spec.Groups[i].DaemonSets {
			d, err := New(s).daemon(t.Context(), nodestartup.NameOf(listed))
			if err != nil {
				t.Fatal(err)
			}
			if d == nil || n.Controlled[d.set] > 0 || !plan.Runs(d.rules, object) || pods >= n.AllowedPods ||
				len(d.pod.Requests.Shortages(n.Allocatable, taken)) > 0 {
				continue
			}
			taken.Add(d.pod.Requests)
			pods++
			out = append(out, describe(d.pod))
		}
	}
	return out
}

func describe(p *fit.Pod) string {
	return fmt.Sprintf("%s %d %d", p.UID, p.Requests.MilliCPU, p.Priority)
}

// TestToComeAgainstTheNaiveWay changes NodeStartups, DaemonSets, priorities and nodes by chance. What is kept in mind
// must say the same as what is worked out from the start.
func TestToComeAgainstTheNaiveWay(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &stored{startups: map[string]*v1alpha1.NodeStartup{}, sets: map[types.NamespacedName]*appsv1.DaemonSet{}}
		k, cluster := New(s), fit.NewCluster()
		uids := 0
		for step := range 150 {
			name := fmt.Sprint("d", r.IntN(6))
			key := types.NamespacedName{Namespace: "kube-system", Name: name}
			switch r.IntN(8) {
			case 0, 1:
				uids++
				ds := daemonSet(name, fmt.Sprint(r.IntN(4)), func(ds *appsv1.DaemonSet) {
					ds.UID = types.UID(fmt.Sprint("uid", uids))
					if r.IntN(3) == 0 {
						ds.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
					}
				})
				s.sets[key] = ds
				k.Changed()
			case 2:
				delete(s.sets, key)
				k.Changed()
			case 3:
				one := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", r.IntN(2))}}
				for _, at := range r.Perm(6)[:r.IntN(7)] {
					one.Spec.Groups = append(one.Spec.Groups, v1alpha1.StartupGroup{DaemonSets: []v1alpha1.StartupDaemonSet{
						{Namespace: "kube-system", Name: fmt.Sprint("d", at)}}})
				}
				s.startups[one.Name] = one
				if r.IntN(6) == 0 {
					delete(s.startups, one.Name)
				}
				k.Changed()
			case 4:
				s.classes = []schedulingv1.PriorityClass{{Value: r.Int32N(3), GlobalDefault: true}}
				k.Changed()
			case 5, 6:
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", r.IntN(3)), Labels: map[string]string{}}}
				if r.IntN(2) == 0 {
					n.Labels["disk"] = "ssd"
				}
				n.Status.Allocatable = corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse(fmt.Sprint(2 + r.IntN(6))), corev1.ResourcePods: resource.MustParse("4"),
				}
				if r.IntN(5) > 0 {
					n.Spec.Taints = []corev1.Taint{*nodestartup.Gate(nodestartup.Place{Startup: fmt.Sprint("s", r.IntN(2)),
						Group: 1 + r.IntN(4)}, v1alpha1.GateJoin, metav1.Now().Time)}
				}
				if before := cluster.Node(n.Name); before != nil && r.IntN(2) == 0 {
					n.Spec.Taints = before.Taints // its labels alone are others
				}
				cluster.SetNode(n)
			case 7:
				if ds := s.sets[key]; ds != nil {
					p := &corev1.Pod{Spec: ds.Spec.Template.Spec}
					p.Namespace, p.Name, p.UID = "kube-system", fmt.Sprint("p", step), types.UID(fmt.Sprint("p", step))
					p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ds, kind)}
					p.Spec.NodeName = fmt.Sprint("n", r.IntN(3))
					cluster.SetPod(p)
				}
			}
			for i := range 3 {
				n := cluster.Node(fmt.Sprint("n", i))
				if n == nil {
					continue
				}
				got, err := k.ToCome(t.Context(), n)
				var says []string
				for _, p := range got {
					says = append(says, describe(p))
				}
				if want := naive(t, s, n); err != nil || !slices.Equal(says, want) {
					t.Fatalf("seed %d, step %d: to come on %s are %q (%v), want %q", seed, step, n.Name, says, err, want)
				}
			}
		}
	}
}

// many are nodes of which some start, with 30 listed DaemonSets.
func many(starting, open int) (*stored, []*fit.Node) {
	s := &stored{startups: map[string]*v1alpha1.NodeStartup{}, sets: map[types.NamespacedName]*appsv1.DaemonSet{}}
	one := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	for i := range 30 {
		ds := daemonSet(fmt.Sprint("d", i), "100m", nil)
		s.sets[client.ObjectKeyFromObject(ds)] = ds
		if i%10 == 0 {
			one.Spec.Groups = append(one.Spec.Groups, v1alpha1.StartupGroup{})
		}
		g := &one.Spec.Groups[i/10]
		g.DaemonSets = append(g.DaemonSets, v1alpha1.StartupDaemonSet{Namespace: ds.Namespace, Name: ds.Name})
	}
	s.startups["default"] = one
	c, nodes := fit.NewCluster(), make([]*fit.Node, 0, starting+open)
	for i := range starting + open {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: map[string]string{
			corev1.LabelHostname: fmt.Sprint("n", i), corev1.LabelTopologyZone: "a", corev1.LabelArchStable: "amd64",
			corev1.LabelOSStable: "linux", "disk": "ssd"}}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"),
			corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
		if i < starting {
			n.Spec.Taints = []corev1.Taint{*nodestartup.Gate(nodestartup.Place{Startup: "default", Group: 1}, v1alpha1.GateNone,
				metav1.Now().Time)}
		}
		c.SetNode(n)
		nodes = append(nodes, c.Node(n.Name))
	}
	return s, nodes
}

// A check of a node that starts reads nothing, and allocates no more where more is listed.
func TestAskingAgainCostsLittle(t *testing.T) {
	s, nodes := many(10, 0)
	k := New(s)
	ask := func() {
		for _, n := range nodes {
			if got, err := k.ToCome(t.Context(), n); err != nil || len(got) != 30 {
				t.Fatalf("to come are %d (%v)", len(got), err)
			}
		}
	}
	ask()
	s.reads = 0
	if got := testing.AllocsPerRun(10, ask) / 10; got > 1 {
		t.Errorf("each asking allocates %v times, want once", got)
	}
	if s.reads > 0 {
		t.Errorf("%d objects are read again", s.reads)
	}
	k.Changed()
	if ask(); s.reads != 31 {
		t.Errorf("after a change %d objects are read, want those that are listed once", s.reads)
	}
}

// BenchmarkToCome asks each of 1,000 nodes that start, of 50,000, as a pod that waits does; and all that do not.
func BenchmarkToCome(b *testing.B) {
	const starting, open = 1000, 49_000
	s, nodes := many(starting, open)
	for name, c := range map[string]struct {
		nodes   []*fit.Node
		changes int // one in so many askings
	}{
		"starting": {nodes[:starting], 0}, "open": {nodes[starting:], 0}, "starting, changes after each 20,000": {nodes[:starting], 20_000},
	} {
		b.Run(name, func(b *testing.B) {
			k := New(s)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if c.changes > 0 && i%c.changes == 0 {
					k.Changed()
				}
				if _, err := k.ToCome(b.Context(), c.nodes[i%len(c.nodes)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
