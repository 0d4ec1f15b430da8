package variants

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/fact"
	"github.com/everynode/everynode/internal/controller/daemonset/matrix/row"
	"github.com/everynode/everynode/internal/controller/daemonset/placement"
)

// world is what a Book is told, and the objects behind that.
type world struct {
	*Book
	rows *matrix.Matrix
	ds   *appsv1.DaemonSet
	pods map[types.UID]*corev1.Pod
	on   map[types.UID]string
	all  map[string]*v1alpha1.DaemonSetVariant
	at   map[string]*corev1.Node
}

func (w *world) Pod(uid types.UID) *corev1.Pod { return w.pods[uid] }

func (w *world) Template(_ types.UID, hash string) *corev1.PodTemplateSpec {
	if hash != "t" {
		return nil
	}
	return &w.ds.Spec.Template
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newWorld() *world {
	w := &world{rows: matrix.New(row.Config{}), pods: map[types.UID]*corev1.Pod{}, on: map[types.UID]string{},
		all: map[string]*v1alpha1.DaemonSetVariant{}, at: map[string]*corev1.Node{}}
	w.Book = New(w.rows)
	w.Book.Objects = w
	w.ds = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "ds", UID: "ds"}}
	w.ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	w.Tick(start)
	w.rows.Step(fact.Now{Time: start})
	return w
}

// settle has everything be told and stored.
func (w *world) settle() {
	w.Settle()
	for _, j := range w.Jobs() {
		for _, r := range j.Make {
			r.UID = types.UID(r.Name)
		}
		w.TellResult(Result{Job: j, Made: j.Make, Deleted: j.Delete})
	}
	w.Settle()
}

func (w *world) begin() {
	rules := placement.Compile(&w.ds.Spec.Template.Spec)
	w.TellDaemonSet(w.ds, false)
	w.Step(fact.DaemonSet{UID: "ds", Namespace: "ns", Name: "ds", Generation: 1, Revision: "t", Placement: rules,
		Earlier: &placement.Revisions{ByRevision: map[string]*placement.Rules{"t": rules}}})
	w.settle()
}

func (w *world) setNode(name, size string, gi int64) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"size": size}}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(gi<<30, resource.BinarySI)}
	w.at[name] = n
	w.TellNode(n, false)
	w.rows.Step(fact.OfNode(n))
}

func (w *world) setVariant(name, size string, priority int32, grace int, share float64) {
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	if have := w.all[name]; have != nil {
		v.Generation = have.Generation + 1
	}
	v.Spec.Priority = priority
	if size != "" {
		v.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"size": size}}
	}
	if grace > 0 {
		v.Spec.Patch = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"terminationGracePeriodSeconds":%d}}`, grace)}
	}
	if share > 0 {
		v.Spec.Resources = map[string]v1alpha1.VariantResources{"c": {Requests: map[corev1.ResourceName]string{
			"memory": fmt.Sprintf("node.allocatable.memory * %f", share)}}}
	}
	w.all[name] = v
	w.TellVariant(v, false)
}

// newest is the name of the newest revision, as the rows were told.
func (w *world) newest() string { return w.sets["ds"].told.Revision }

// make makes the pod of a node by a revision.
func (w *world) make(uid types.UID, node, revision string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid, Labels: map[string]string{
		content.RevisionLabel: revision, appsv1.ControllerRevisionHashLabelKey: content.TemplateOf(revision)}}}
	o, err := w.Outcome("ds", revision, node)
	if err != nil || o != nil && o.Err != nil {
		return // none is made
	}
	if o != nil && !o.Plain {
		text, err := o.Text(p.Name)
		if err != nil {
			panic(err)
		}
		p.Annotations = map[string]string{variant.Annotation: text}
	}
	w.pods[uid], w.on[uid] = p, node
	w.Step(fact.Pod{UID: uid, Name: p.Name, Owner: "ds", Node: node, Bound: true,
		Revision: content.RevisionOf("t", p.Labels), Created: start})
}

// A naive look at every pod, from nothing: it has the newest revision if and only if the pod made now would fit.
func (w *world) naive() (out []string) {
	var all []variant.Variant
	for _, v := range w.all {
		all = append(all, variant.Of(v))
	}
	s, err := variant.NewSet(all)
	if err != nil {
		panic(err)
	}
	for uid, p := range w.pods {
		n := variant.OfNode(w.at[w.on[uid]])
		mark := variant.MarkOf(&p.ObjectMeta)
		o := variant.Outcome{Plain: true}
		if s != nil {
			o = s.On(&w.ds.Spec.Template).Of(&n)
		}
		if o.Fits(&mark) {
			out = append(out, string(uid))
		}
	}
	slices.Sort(out)
	return out
}

// Whatever happens, in whatever order, exactly those pods have the newest revision that would be the same if they were
// made now; of the others none passes for it. What is asked from above never hears of variants.
func TestWhoHasTheNewest(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorld()
		size := func() string { return []string{"s", "m", "xl"}[r.IntN(3)] }
		for i := range 6 {
			w.setNode(fmt.Sprint("n", i), size(), int64(1+r.IntN(64)))
		}
		w.begin()
		for step := range 40 {
			node := fmt.Sprint("n", r.IntN(6))
			switch r.IntN(6) {
			case 0:
				name := fmt.Sprint("v", r.IntN(3))
				w.setVariant(name, []string{"", size()}[r.IntN(2)], int32(r.IntN(3)), r.IntN(3), float64(r.IntN(3))/10)
			case 1:
				name := fmt.Sprint("v", r.IntN(3))
				if v := w.all[name]; v != nil {
					delete(w.all, name)
					w.TellVariant(v, true)
				}
			case 2:
				w.setNode(node, size(), int64(1+r.IntN(64)))
			case 3:
				for uid, on := range w.on {
					if on == node {
						delete(w.pods, uid)
						delete(w.on, uid)
						w.Step(fact.PodGone(uid))
					}
				}
				w.make(types.UID(fmt.Sprint("p", step)), node, w.newest())
			}
			w.settle()
			var has []string
			for uid := range w.pods {
				info, known := w.rows.Pod(uid)
				if !known {
					t.Fatalf("seed %d, step %d: pod %s is not known", seed, step, uid)
				}
				if info.Revision == w.newest() {
					has = append(has, string(uid))
				}
				if above, _ := w.Book.Pod(uid); content.VariantsOf(above.Revision) != "" {
					t.Fatalf("seed %d, step %d: from above %s has %s", seed, step, uid, above.Revision)
				}
			}
			slices.Sort(has)
			if want := w.naive(); !slices.Equal(has, want) {
				t.Fatalf("seed %d, step %d: %v have the newest revision %s, want %v", seed, step, has, w.newest(), want)
			}
			if n := w.PodsOfRevision("ds", "t"); n != len(w.pods) {
				t.Fatalf("seed %d, step %d: %d pods are of the template, want %d", seed, step, n, len(w.pods))
			}
		}
	}
}

// Variants are stored before they are used, stay as long as somebody may need them, and go then. What does not hold what
// its name says is not used.
func TestWhatIsStored(t *testing.T) {
	w := newWorld()
	w.setNode("n0", "s", 4)
	w.begin()
	w.make("p0", "n0", "t")
	w.setVariant("v", "", 0, 7, 0)
	w.Settle()
	if got := w.newest(); got != "t" {
		t.Errorf("before its variants are stored the newest revision is %s", got)
	}
	jobs := w.Jobs()
	if len(jobs) != 1 || len(jobs[0].Make) != 1 || metav1.GetControllerOf(jobs[0].Make[0]) != nil {
		t.Fatalf("to be stored are %+v", jobs)
	}
	if again := w.Jobs(); len(again) > 0 {
		t.Errorf("it is asked for twice: %+v", again)
	}
	w.TellResult(Result{Job: jobs[0], Why: "a quota"})
	w.Settle()
	if got := w.newest(); got != "t" || len(w.Jobs()) > 0 {
		t.Errorf("after a failure the newest revision is %s, or it is tried at once", got)
	}
	w.Tick(start.Add(time.Minute))
	w.settle()
	first := content.VariantsOf(w.newest())
	if first == "" {
		t.Fatal("the variants are stored and not used")
	}
	spoiled := w.sets["ds"].known[first].stored.DeepCopy()
	spoiled.Data.Raw = []byte(`{"variants":[{"name":"other"}]}`)
	other := newWorld()
	other.TellDaemonSet(other.ds, false)
	other.TellStored(spoiled, false)
	if len(other.sets["ds"].known) > 0 {
		t.Error("what does not hold what its name says is taken for it")
	}
	// Once they are not needed, then they are, and not again: two minutes count from then.
	for _, step := range []struct {
		after time.Duration
		grace int
	}{{1, 9}, {2, 7}, {5, 9}} {
		w.Tick(start.Add(step.after * time.Minute))
		w.setVariant("v", "", 0, step.grace, 0)
		for range 3 {
			w.settle()
		}
		if k := w.sets["ds"].known[first]; k == nil || k.stored == nil {
			t.Errorf("after %d minutes they are gone at once", step.after)
		}
	}
	for _, after := range []time.Duration{6, 10} {
		w.Tick(start.Add(after * time.Minute))
		w.settle()
	}
	if w.sets["ds"].known[first] != nil && w.sets["ds"].known[first].stored != nil {
		t.Error("they are kept though nobody needs them")
	}
}

// Too many variants change nothing: the DaemonSet keeps those that it had, and one whose variants nobody knows, since the
// controller has just started, is held.
func TestTooManyVariants(t *testing.T) {
	w := newWorld()
	w.setNode("n0", "s", 4)
	w.setVariant("v", "", 0, 7, 0)
	w.begin()
	had := w.newest()
	for i := range variant.MaxVariants {
		w.setVariant(fmt.Sprint("w", i), "", -1, 0, 0.1)
	}
	w.settle()
	if got := w.newest(); got != had || content.VariantsOf(had) == "" || w.sets["ds"].told.Held {
		t.Errorf("the newest revision is %s, held %t; it was %s", got, w.sets["ds"].told.Held, had)
	}
	if w.describe(w.all["v"]); !strings.Contains(w.all["v"].Status.Conditions[0].Message, "21 variants choose it") {
		t.Errorf("the conditions are %+v", w.all["v"].Status.Conditions)
	}
	other := newWorld()
	other.all = w.all
	for _, v := range w.all {
		other.TellVariant(v, false)
	}
	other.begin()
	if !other.sets["ds"].told.Held {
		t.Error("after a restart its pods may be taken for outdated")
	}
	for _, book := range []*world{w, other} {
		book.TellVariant(w.all["w3"], true)
		book.settle()
		if got := book.newest(); got == had || content.VariantsOf(got) == "" || book.sets["ds"].told.Held {
			t.Errorf("with one less the newest revision is %s, held %t", got, book.sets["ds"].told.Held)
		}
	}
}

// A DaemonSet without variants goes through as it is.
func TestNothingIsAddedWithoutVariants(t *testing.T) {
	w := newWorld()
	w.setNode("n0", "s", 4)
	w.begin()
	w.make("p0", "n0", "t")
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "v", UID: "v"}}
	w.TellVariant(v, false)
	w.settle()
	info, _ := w.rows.Pod("p0")
	if info.Revision != "t" || w.newest() != "t" || len(w.Jobs()) > 0 || w.sets["ds"].pods != nil {
		t.Errorf("the pod has %s, the newest is %s, %+v", info.Revision, w.newest(), w.sets["ds"])
	}
}
