package room

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/everynode/everynode/api/newer"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/fit/resources"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

func daemonSet(name, cpu string, change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{}
	ds.Namespace, ds.Name, ds.UID, ds.Generation = "kube-system", name, types.UID(name), 1
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}}
	ds.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu),
	}
	if change != nil {
		change(ds)
	}
	return ds
}

// asking are DaemonSets, each by its name and how much CPU its daemon asks for.
func asking(daemons ...string) (out []client.Object) {
	for _, d := range daemons {
		name, cpu, _ := strings.Cut(d, "=")
		out = append(out, daemonSet(name, cpu, nil))
	}
	return out
}

// starts is a node of four cores and five pods that starts at a group, where pods of DaemonSets run.
func starts(value string, running ...string) *fit.Node {
	c := fit.NewCluster()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"disk": "ssd"}}}
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("5"),
	}
	if value != "" {
		gate := corev1.Taint{Key: nodestartup.TaintKey, Value: value, Effect: corev1.TaintEffectPreferNoSchedule}
		n.Spec.Taints = []corev1.Taint{gate}
	}
	c.SetNode(n)
	for _, name := range running {
		ds := daemonSet(name, "1", nil)
		p := &corev1.Pod{Spec: ds.Spec.Template.Spec}
		p.Namespace, p.Name, p.UID = "kube-system", name, types.UID("pod of "+name)
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(ds, kind)}
		p.Spec.NodeName = "n"
		c.SetPod(p)
	}
	return c.Node("n")
}

func keeper(t *testing.T, objects ...client.Object) *Keeper {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &v1alpha1.NodeStartup{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	for _, group := range [][]string{{"cni"}, {"storage", "log"}, {"last", "missing"}} {
		var g v1alpha1.StartupGroup
		for _, name := range group {
			g.DaemonSets = append(g.DaemonSets, v1alpha1.StartupDaemonSet{Namespace: "kube-system", Name: name})
		}
		s.Spec.Groups = append(s.Spec.Groups, g)
	}
	return New(fake.NewClientBuilder().WithScheme(scheme).WithObjects(s).WithObjects(objects...).Build())
}

func TestToCome(t *testing.T) {
	elsewhere := func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "none"} }
	sets := append(asking("cni=1", "log=1", "last=1"), daemonSet("storage", "1", elsewhere))
	for name, c := range map[string]struct {
		node *fit.Node
		sets []client.Object
		want []string
	}{
		"all of them":           {starts("default_1"), sets, []string{"cni", "log", "last"}},
		"one is there":          {starts("default_1", "cni"), sets, []string{"log", "last"}},
		"the second group":      {starts("default_2"), sets, []string{"log", "last"}},
		"the last group":        {starts("default_3"), sets, []string{"last"}},
		"it has started":        {starts(""), sets, nil},
		"another NodeStartup":   {starts("other_1"), sets, nil},
		"a taint by hand":       {starts("default"), sets, nil},
		"no room for one":       {starts("default_1"), asking("cni=5", "log=1"), []string{"log"}},
		"no room for all":       {starts("default_1"), asking("cni=3", "log=2", "last=1"), []string{"cni", "last"}},
		"no place for all pods": {starts("default_1", "a", "b", "c"), asking("cni=0", "log=0", "last=0"), []string{"cni", "log"}},
		"one on its way out": {starts("default_3"), []client.Object{daemonSet("last", "1", func(ds *appsv1.DaemonSet) {
			ds.DeletionTimestamp, ds.Finalizers = new(metav1.Now()), []string{"x"}
		})}, nil},
	} {
		k := keeper(t, c.sets...)
		for range 2 {
			got, err := k.ToCome(t.Context(), c.node)
			var names []string
			for _, p := range got {
				names = append(names, p.Name)
			}
			if err != nil || !slices.Equal(names, c.want) {
				t.Errorf("%s: to come are %v (%v), want %v", name, names, err, c.want)
			}
		}
	}
}

// A DaemonSet that is edited, or made again, has another daemon from then on.
func TestToComeOfAnotherTemplate(t *testing.T) {
	k := keeper(t, daemonSet("last", "1", nil))
	cpu := func() int64 {
		got, err := k.ToCome(t.Context(), starts("default_3"))
		if err != nil || len(got) != 1 {
			t.Fatalf("to come are %v (%v)", got, err)
		}
		return got[0].Requests.MilliCPU
	}
	if got := cpu(); got != 1000 {
		t.Errorf("it asks for %d", got)
	}
	change := func(by string, change func(*appsv1.DaemonSet)) {
		var ds appsv1.DaemonSet
		c := k.reader.(client.Client)
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: "kube-system", Name: "last"}, &ds); err != nil {
			t.Fatal(err)
		}
		ds.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(by)
		change(&ds)
		if err := c.Update(t.Context(), &ds); err != nil {
			t.Fatal(err)
		}
		k.Changed()
	}
	change("2", func(ds *appsv1.DaemonSet) { ds.Generation = 2 })
	if got := cpu(); got != 2000 {
		t.Errorf("after an edit it asks for %d", got)
	}
	change("3", func(ds *appsv1.DaemonSet) { ds.UID = "again" })
	if got := cpu(); got != 3000 {
		t.Errorf("made again it asks for %d", got)
	}
}

// A daemon is as large on each node as the variant of that node has it, also after the node or the variant has changed,
// and where the Node is read later than it was placed on. Where none can be had, no room is kept.
func TestToComeByVariants(t *testing.T) {
	ds := daemonSet("last", "1", func(ds *appsv1.DaemonSet) { ds.Labels = map[string]string{"app": "log"} })
	v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, Name: "by-size"}}
	v.Spec.DaemonSets = &metav1.LabelSelector{MatchLabels: ds.Labels}
	v.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "ssd"}}
	v.Spec.Resources = map[string]v1alpha1.VariantResources{"main": {
		Limits: map[corev1.ResourceName]string{"memory": "quantity('64Mi')"}}}
	other := v.DeepCopy()
	other.Namespace, other.Spec.Nodes, other.Spec.Priority = "other", nil, 9
	large := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"disk": "ssd"}}}
	k := keeper(t, ds, v, other, large)
	c := k.reader.(client.Client)
	formula := func(cpu string) {
		v.Spec.Resources["main"] = v1alpha1.VariantResources{Limits: v.Spec.Resources["main"].Limits,
			Requests: map[corev1.ResourceName]string{"cpu": cpu}}
		if err := c.Update(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		k.Changed()
	}
	stored := func(cores string) {
		large.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cores),
			corev1.ResourceMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("5")}
		if err := c.Status().Update(t.Context(), large); err != nil {
			t.Fatal(err)
		}
	}
	asks := func(when, cores string, want ...int64) {
		t.Helper()
		n := starts("default_3")
		n.Allocatable = resources.FromList(large.Status.Allocatable)
		amount := resource.MustParse(cores)
		n.Allocatable.MilliCPU = amount.MilliValue()
		for range 2 {
			got, err := k.ToCome(t.Context(), n)
			var cpu []int64
			for _, p := range got {
				cpu = append(cpu, p.Requests.MilliCPU)
				if p.Requests.Memory != 64<<20 {
					t.Errorf("%s it asks for %d bytes", when, p.Requests.Memory)
				}
			}
			if err != nil || !slices.Equal(cpu, want) {
				t.Errorf("%s it asks for %v (%v), want %v", when, cpu, err, want)
			}
		}
	}
	formula("node.allocatable.cpu * 0.1")
	stored("4")
	asks("on a small node", "4", 400)
	asks("before the larger one is read", "64", 400)
	stored("64")
	asks("when it is", "64", 6400)
	formula("node.allocatable.cpu * 0.2")
	asks("with another formula", "64", 12800)
	formula("node.labels['missing'] == '' ? 1.0 : 2.0")
	asks("where it cannot be had", "64")
	formula("2.0")
	asks("where it can again", "64", 2000)
	v.Annotations = map[string]string{newer.Annotation: "spec.resources[main].floor"}
	formula("node.allocatable.cpu * 0.5")
	asks("where only a newer program knows all of it", "64", 2000)
	v.Annotations = nil
	formula("3.0")
	asks("once all is known", "64", 3000)
	formula("3.0 +")
	asks("where it cannot be read", "64", 3000)
	again := ds.DeepCopy()
	again.UID, again.ResourceVersion = "again", ""
	for _, what := range []string{"is gone", "is made again"} {
		err := client.IgnoreNotFound(c.Delete(t.Context(), ds))
		if what == "is made again" && err == nil {
			err = c.Create(t.Context(), again)
		}
		if err != nil {
			t.Fatal(err)
		}
		k.Changed()
		got, err := k.ToCome(t.Context(), starts("default_3"))
		if err != nil || len(k.had) != 0 || len(got) > 0 && got[0].Requests.MilliCPU != 1000 {
			t.Errorf("where the DaemonSet %s, %d are remembered, and it asks for %v (%v)", what, len(k.had), got, err)
		}
	}
	got, err := New(c).ToCome(t.Context(), starts("default_3"))
	if err != nil || len(got) != 1 || got[0].Requests.MilliCPU != 1000 {
		t.Errorf("where it never could it asks for %v (%v), want what the template does", got, err)
	}
}

func TestPriorityOfADaemonToCome(t *testing.T) {
	class := func(name string, value int32, fallback bool) *schedulingv1.PriorityClass {
		c := &schedulingv1.PriorityClass{Value: value, GlobalDefault: fallback}
		c.Name = name
		return c
	}
	named := func(name string) func(*appsv1.DaemonSet) {
		return func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.PriorityClassName = name }
	}
	for name, c := range map[string]struct {
		change  func(*appsv1.DaemonSet)
		classes []client.Object
		want    int32
	}{
		"by its class":       {named("high"), []client.Object{class("high", 7, false), class("all", 3, true)}, 7},
		"by the default":     {nil, []client.Object{class("high", 7, false), class("all", 3, true)}, 3},
		"none":               {nil, []client.Object{class("high", 7, false)}, 0},
		"a class is missing": {named("gone"), []client.Object{class("all", 3, true)}, 0},
		"by the template":    {func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.Priority = new(int32(9)) }, nil, 9},
	} {
		k := keeper(t, append(c.classes, daemonSet("last", "1", c.change))...)
		got, err := k.ToCome(t.Context(), starts("default_3"))
		if err != nil || len(got) != 1 || got[0].Priority != c.want {
			t.Errorf("%s: %v (%v), want %d", name, got, err, c.want)
		}
	}
}
